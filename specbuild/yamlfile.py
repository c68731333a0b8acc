"""YAML with line numbers: safe, duplicate keys refused, every value's place kept."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from specbuild.errors import Fault, ProfileError

Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class YamlFile:
    """A parsed file: ``data`` as plain Python values and ``lines``, the 1-based line of every key path."""

    path: Path
    data: Any
    lines: dict[Keys, int] = field(repr=False)

    def where(self, keys: Keys) -> str:
        """``file:line`` of the deepest part of ``keys`` that the file has."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return f"{self.path}:{self.lines.get(keys, 1)}"


def load(path: Path) -> YamlFile:
    """Parse ``path``.

    Raises ProfileError: unreadable, not YAML (with line and column), or with keys given twice (all of them at once).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read the profile: {error}", where=str(path)) from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        lines: dict[Keys, int] = {}
        twice: list[Fault] = []
        data = _plain(root, (), path, lines, twice) if root is not None else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error)
        raise ProfileError(f"not valid YAML: {problem}", where=place) from error
    if twice:
        raise ProfileError(twice)
    return YamlFile(path, data, lines)


def _plain(node: yaml.Node, keys: Keys, path: Path, lines: dict[Keys, int], twice: list[Fault]) -> Any:
    lines.setdefault(keys, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        found: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = _scalar(key_node)
            place = (*keys, key)
            line = key_node.start_mark.line + 1
            if key in found:
                twice.append(
                    Fault(
                        f"key {key!r} is given twice (first on line {lines[place]})",
                        f"{path}:{line}",
                        "keep one of the two",
                    )
                )
            lines[place] = line
            found[key] = _plain(value_node, place, path, lines, twice)
        return found
    if isinstance(node, yaml.SequenceNode):
        places = [(item, (*keys, index)) for index, item in enumerate(node.value)]
        return [_plain(item, place, path, lines, twice) for item, place in places]
    return _scalar(node)


def _scalar(node: yaml.Node) -> Any:
    if not isinstance(node, yaml.ScalarNode):
        raise yaml.constructor.ConstructorError(problem="a key must be plain text", problem_mark=node.start_mark)
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    finally:
        loader.dispose()
