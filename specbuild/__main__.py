"""``python -m specbuild``."""

import sys

from specbuild.cli import main

if __name__ == "__main__":
    sys.exit(main())
