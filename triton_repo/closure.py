"""Which modules of specbuild a served model needs, read from the import statements."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import specbuild

ROOT = Path(specbuild.__file__).parent


@dataclass(frozen=True)
class Closure:
    """Everything that an entry module imports, however late."""

    modules: dict[str, Path]
    """Dotted name → source file, sorted; packages are left out: a served model gets empty ones."""
    packages: tuple[str, ...]
    libraries: frozenset[str]
    """Top-level names outside specbuild and the standard library."""


def closure(entry: str) -> Closure:
    """The modules that ``entry`` needs, itself left out. Imports for type checkers only do not count.

    Raises ImportError where a module takes a name from a package's ``__init__``, which is not served.
    """
    modules: dict[str, Path] = {}
    libraries: set[str] = set()
    todo = [entry]
    while todo:
        name = todo.pop()
        if name in modules:
            continue
        modules[name] = source(name)
        for wanted in _imports(ast.parse(modules[name].read_bytes())):
            if wanted.partition(".")[0] == "specbuild":
                todo.append(wanted)
            else:
                libraries.add(wanted.partition(".")[0])
    del modules[entry]
    packages = {".".join(name.split(".")[:depth]) for name in modules for depth in range(1, name.count(".") + 1)}
    return Closure(
        dict(sorted(modules.items())), tuple(sorted(packages)), frozenset(libraries - sys.stdlib_module_names)
    )


def source(name: str) -> Path:
    """The file of a module of specbuild. Raises ImportError where it is a package or missing."""
    path = ROOT.joinpath(*name.split(".")[1:]).with_suffix(".py")
    if not path.is_file():
        raise ImportError(f"{name} is not a module of specbuild", name=name)
    return path


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in _runtime_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""  # relative imports are banned
            if _is_package(module):
                yield from (f"{module}.{alias.name}" for alias in node.names)
            else:
                yield module


def _is_package(name: str) -> bool:
    first, *rest = name.split(".")
    return first == "specbuild" and ROOT.joinpath(*rest).is_dir()


def _runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Every node outside ``if TYPE_CHECKING:``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            for other in child.orelse:
                yield from _runtime_nodes(other)
        else:
            yield child
            yield from _runtime_nodes(child)
