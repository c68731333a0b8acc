"""Write what follows from the profile's class: profiles/schema.json, and the tables of keys in profiles/README.md.

python ci/schema.py [--check] [FOLDER]     --check writes nothing and fails where a file is not current
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specbuild.profile import Profile

PROFILES = Path(__file__).parent.parent / "profiles"
KEYS = re.compile(r"(?<=<!-- keys -->\n).*(?=<!-- /keys -->)", re.DOTALL)


def main(arguments: list[str]) -> int:
    """Write both files, or with --check name those that are not current; returns the exit code."""
    folder = Path(next((word for word in arguments if not word.startswith("-")), PROFILES))
    readme = folder / "README.md"
    wanted = {
        folder / "schema.json": json.dumps(schema(), indent=2) + "\n",
        readme: KEYS.sub(lambda _: keys(schema()), readme.read_text(encoding="utf-8")),
    }
    stale = [file for file, text in wanted.items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    for file in stale:
        if "--check" in arguments:
            print(f"{file} is not current: run python ci/schema.py", file=sys.stderr)
        else:
            file.write_text(wanted[file], encoding="utf-8")
            print(f"wrote {file}")
    return int(bool(stale) and "--check" in arguments)


def schema() -> dict[str, Any]:
    """The JSON schema of a profile (draft 2020-12), without the titles that repeat the keys."""
    found: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_untitled(Profile.model_json_schema(by_alias=True)),
        "title": "A specbuild profile",
    }
    found["properties"]["budgets"]["additionalProperties"] = False  # pydantic leaves out that names have a pattern
    return found


def _untitled(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _untitled(value) for key, value in node.items() if not (key == "title" and isinstance(value, str))}
    return [_untitled(item) for item in node] if isinstance(node, list) else node


def keys(found: dict[str, Any]) -> str:
    """A Markdown section for the top level and for every mapping below it, in the order in which they are named."""
    return "\n".join(_section([""], found, found["$defs"]))


def _section(places: list[str], node: dict[str, Any], defs: dict[str, Any]) -> Iterator[str]:
    """``places``: the key paths whose value ``node`` describes, each with a final dot."""
    yield f"### {', '.join(f'`{place[:-1]}`' if place else 'Top level' for place in places)}\n"
    yield f"{_plain(node['description'])}\n"
    yield "| key | value | default | |\n|---|---|---|---|"
    below: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for key, value in node["properties"].items():
        inner = _mapping(value, defs)
        if inner is not None:
            below.setdefault(inner["description"], (inner, []))[1].extend(f"{place}{key}." for place in places)
        words = "a mapping, below" if inner is not None else _value(value)
        default = "**needed**" if key in node.get("required", []) else _default(value, inner)
        yield f"| `{key}` | {words} | {default} | {_plain(value['description'])} |"
    yield ""
    for inner, named in below.values():
        yield from _section(named, inner, defs)


def _mapping(value: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any] | None:
    """The definition of a mapping that ``value`` refers to, if it does."""
    for option in value.get("anyOf", [value]):
        if "$ref" in option:
            found: dict[str, Any] = defs[option["$ref"].rsplit("/", 1)[1]]
            return found
    return None


def _value(value: dict[str, Any]) -> str:
    value = {**value, **value.get("anyOf", [{}])[0]}
    if "enum" in value or "const" in value:
        return r" \| ".join(f"`{word}`" for word in value.get("enum", [value.get("const")]))
    if "patternProperties" in value:
        return "names, each `max_throughput` or limits in ms"
    kind = {"integer": "whole number", "number": "number", "string": "text"}[value["type"]]
    low, high = value.get("minimum"), value.get("maximum")
    if low is not None and high is not None:
        return f"{kind}, {low} to {high}"
    if low is not None:
        return f"{kind}, at least {low}"
    return f"{kind} above {value['exclusiveMinimum']}" if "exclusiveMinimum" in value else kind


def _default(value: dict[str, Any], inner: dict[str, Any] | None) -> str:
    if value["default"] is None:
        return ""
    return "its defaults" if inner is not None else f"`{value['default']}`"


def _plain(text: str) -> str:
    """Docstring to Markdown: one line, single backticks."""
    return " ".join(text.replace("``", "`").split())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
