"""YAML with line numbers: safe, keys are text, duplicate keys refused, every value's place kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from specbuild.errors import Fault, ProfileError

Keys = tuple[str | int, ...]
MOST_VALUES = 100_000
"""Values of one file, aliases written out; more is a mistake or an attack."""
_TAG = "tag:yaml.org,2002:"


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
    except (OSError, ValueError) as error:
        raise ProfileError(f"cannot read the profile: {error}", where=str(path)) from error
    walk = _Walk(path)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = walk.value(root, ()) if root is not None else None
    except RecursionError as error:
        raise ProfileError("nested too deep, or a value that contains itself", where=str(path)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        raise ProfileError(f"not valid YAML: {error.reason}", where=f"{path}:{line}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ProfileError(f"not valid YAML: {error.problem}", where=place) from error
    if walk.twice:
        raise ProfileError(walk.twice)
    return YamlFile(path, data, walk.lines)


class _Walk:
    """Turns nodes into plain values and remembers where each stood."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[Keys, int] = {}
        self.twice: list[Fault] = []
        self.values = 0

    def value(self, node: yaml.Node, keys: Keys) -> Any:
        self.values += 1
        if self.values > MOST_VALUES:
            raise _error(f"more than {MOST_VALUES} values", node)
        self.lines.setdefault(keys, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            raise _error(f"the tag {node.tag!r} means nothing here", node)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, keys)
        return [self.value(item, (*keys, index)) for index, item in enumerate(node.value)]

    def mapping(self, node: yaml.MappingNode, keys: Keys) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for base in reversed([*_merged(node)]):  # of several merged mappings the first wins
            found |= self.mapping(base, keys)
        own: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise _error("a key must be plain text", key_node)
            key, line = key_node.value, key_node.start_mark.line + 1
            if key in own:
                what = f"key {key!r} is given twice (first on line {own[key]})"
                self.twice.append(Fault(what, f"{self.path}:{line}", "keep one of the two"))
            own.setdefault(key, line)
            place = (*keys, key)
            self.lines[place] = line
            found[key] = self.value(value_node, place)
        return found


def _merged(node: yaml.MappingNode) -> Iterator[yaml.MappingNode]:
    """The mappings that ``<<`` names."""
    for key_node, value_node in node.value:
        if key_node.tag == f"{_TAG}merge":
            bases = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            for base in bases:
                if not isinstance(base, yaml.MappingNode):
                    raise _error("<< takes a mapping or a list of mappings", base)
                yield base


def _scalar(node: yaml.ScalarNode) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    except (ValueError, KeyError) as error:  # such as the month 13 of what looks like a date
        raise _error(f"{node.value!r}: {error}", node) from error
    finally:
        loader.dispose()


def _error(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
