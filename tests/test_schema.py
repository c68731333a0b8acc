"""What is generated from the profile's class is current, and what the README shows loads."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbuild import trace
from specbuild.errors import ProfileError
from specbuild.profile import Profile

ROOT = Path(__file__).parent.parent
README = (ROOT / "profiles" / "README.md").read_text(encoding="utf-8")


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "ci" / "schema.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_files_are_current() -> None:
    done = generate("--check")
    assert done.returncode == 0, done.stderr


def test_a_stale_file_is_named_and_mended(tmp_path: Path) -> None:
    for name in ("schema.json", "README.md"):
        shutil.copy(ROOT / "profiles" / name, tmp_path)
        text = (tmp_path / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("Samples taken.", "Samples."), encoding="utf-8")
    done = generate("--check", str(tmp_path))
    assert done.returncode == 1
    assert all(str(tmp_path / name) in done.stderr for name in ("schema.json", "README.md"))
    assert generate(str(tmp_path)).returncode == 0
    assert generate("--check", str(tmp_path)).returncode == 0
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == README


def test_the_readmes_profile_loads(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(block("yaml"), encoding="utf-8")
    assert Profile.load(tmp_path / "p.yaml").name == "made"


def test_the_readmes_traffic_loads(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(block("json"), encoding="utf-8")
    assert len(trace.load(tmp_path / "t.jsonl").requests) == 2


def properties(node: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        yield from node.get("properties", {}).items()
        for value in node.values():
            yield from properties(value)


def test_every_key_says_what_it_is_in_the_schema_and_in_the_readme() -> None:
    found = [*properties(json.loads((ROOT / "profiles" / "schema.json").read_text(encoding="utf-8")))]
    assert len(found) > 25
    for name, value in found:
        assert value.get("description"), name
        assert f"| `{name}` |" in README


def accepts(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    """Enough of JSON Schema for the words that the schema uses; others would be a surprise here."""
    if "$ref" in schema:
        return accepts(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], value, root)
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return sum(accepts(option, value, root) for option in schema[union]) >= 1
    kinds = {"object": dict, "string": str, "integer": int, "number": (int, float), "null": type(None)}
    if isinstance(value, bool) or not isinstance(value, kinds[schema["type"]]):
        return False
    if isinstance(value, dict):
        return _accepts_mapping(schema, value, root)
    return (
        value in schema.get("enum", [value])
        and value == schema.get("const", value)
        and re.search(schema.get("pattern", ""), str(value)) is not None
        and (
            isinstance(value, str)
            or value is None
            or schema.get("minimum", value) <= value <= schema.get("maximum", value)
        )
        and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
        and (not isinstance(value, str) or len(value) >= schema.get("minLength", 0))
    )


def _accepts_mapping(schema: dict[str, Any], value: dict[str, Any], root: dict[str, Any]) -> bool:
    known, patterns, rest = (schema.get(key, {}) for key in ("properties", "patternProperties", "additionalProperties"))
    for key, inner in value.items():
        options = (
            [known[key]] if key in known else [found for pattern, found in patterns.items() if re.search(pattern, key)]
        )
        if not options and not (rest and key in schema["propertyNames"]["enum"]):
            return False
        if not all(accepts(option, inner, root) for option in options or [rest]):
            return False
    return {*schema.get("required", [])} <= {*value} and len(value) >= schema.get("minProperties", 0)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"name": "a b"},
        {"name": 3},
        {"numerics": "exat"},
        {"stack": "x"},
        {"schema": 2},
        {"foo": 1},
        {"target": {}},
        {"limits": {"max_batch_size": 0}},
        {"limits": {"max_batch_size": 257}},
        {"limits": {"max_batch_size": True}},
        {"budgets": {}},
        {"budgets": {"a b": "max_throughput"}},
        {"budgets": {"a": "fast"}},
        {"budgets": {"a": {}}},
        {"budgets": {"a": {"tpot_p95": 1}}},
        {"budgets": {"a": {"tpot_p95_ms": 0}}},
        {"budgets": {"a": {"e2e_p50_ms": 1}}},
        {"traffic": {"file": "x", "max_requests": 3}},
        {"traffic": {"file": "x", "max_requests": None}},
        {"traffic": {"file": "x", "speed": 0.5}},
        {"serving": {"model_name": "a/b"}},
        {"serving": {"host": "::1"}},
        {"draft": {"model": "m", "precision": "int4", "calibration": {"size": 8}}},
        {"draft": {"model": "", "precision": "int4"}},
    ],
    ids=str,
)
def test_the_schema_and_the_class_accept_the_same(tmp_path: Path, change: dict[str, Any]) -> None:
    value = {**yaml.safe_load(block("yaml")), **change}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(value), encoding="utf-8")
    schema = json.loads((ROOT / "profiles" / "schema.json").read_text(encoding="utf-8"))
    assert accepts(schema, value, schema) is loads(tmp_path / "p.yaml")


@pytest.mark.parametrize("path", sorted((ROOT / "profiles").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_profiles_are_valid_for_both(path: Path) -> None:
    schema = json.loads((ROOT / "profiles" / "schema.json").read_text(encoding="utf-8"))
    assert Profile.load(path).name == path.stem
    assert accepts(schema, yaml.safe_load(path.read_text(encoding="utf-8")), schema)


def loads(path: Path) -> bool:
    try:
        Profile.load(path)
    except ProfileError:
        return False
    return True
