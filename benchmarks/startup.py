"""Time from the shell to help, of every command: the best of several runs, in milliseconds.

The design asks for less than 300 ms. python benchmarks/startup.py
"""

from __future__ import annotations

import subprocess
import sys
import time

from specbuild.cli import COMMANDS

RUNS = 7


def best_ms(*arguments: str) -> float:
    took = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "specbuild", *arguments], stdout=subprocess.DEVNULL, check=True)
        took.append((time.perf_counter() - begun) * 1000)
    return min(took)


if __name__ == "__main__":
    for arguments in (("--help",), *((name, "--help") for name in COMMANDS)):
        print(f"specbuild {' '.join(arguments):<20} {best_ms(*arguments):6.0f} ms", flush=True)
