"""Hold files and functions to a size that one can read: says what is long, fails on what is too long."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("specbuild", "builder", "runtime", "triton_repo", "profiles", "tests", "benchmarks", "ci")
FILE_LINES = (300, 400)
"""Said above the first, refused above the second."""
FUNCTION_LINES = (40, 60)


def main() -> int:
    """Print what is long; 1 if anything is too long."""
    refused = False
    for place, what, lines, (long, too_long) in sorted(_measured(), key=lambda item: -item[2]):
        if lines > long:
            refused |= lines > too_long
            print(f"{place}: {what} of {lines} lines, {f'more than {too_long}' if lines > too_long else 'long'}")
    return int(refused)


def _measured() -> Iterator[tuple[str, str, int, tuple[int, int]]]:
    """Place, kind, lines and limits of every file and function; links are the folders that they lead to."""
    for path in (path for folder in FOLDERS for path in Path(folder).rglob("*.py") if not _linked(path)):
        text = path.read_text(encoding="utf-8")
        yield str(path), "a file", text.count("\n"), FILE_LINES
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield f"{path}:{node.lineno}", f"a function ({node.name})", lines, FUNCTION_LINES


def _linked(path: Path) -> bool:
    return any(parent.is_symlink() for parent in path.parents)


if __name__ == "__main__":
    sys.exit(main())
