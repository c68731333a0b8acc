from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbuild import yamlfile
from specbuild.errors import ProfileError

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="ascii")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1), inner, max_size=4)
    ),
    max_leaves=15,
)
SAME_PATH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)


def read(tmp_path: Path, text: str | bytes) -> yamlfile.YamlFile:
    path = tmp_path / "p.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return yamlfile.load(path)


def faults(tmp_path: Path, text: str | bytes) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        read(tmp_path, text)
    return [f"{(fault.where or '').removeprefix(str(tmp_path))}: {fault.what}" for fault in caught.value.faults]


def test_every_value_has_its_line(tmp_path: Path) -> None:
    file = read(tmp_path, "# a comment\na: 1\nb:\n  c: [x,\n      y]\n\n  d: {e: 2}\n")
    assert file.data == {"a": 1, "b": {"c": ["x", "y"], "d": {"e": 2}}}
    lines = {keys: int(file.where(keys).rsplit(":", 1)[1]) for keys in file.lines if keys}
    assert lines == {
        ("a",): 2,
        ("b",): 3,
        ("b", "c"): 4,
        ("b", "c", 0): 4,
        ("b", "c", 1): 5,
        ("b", "d"): 7,
        ("b", "d", "e"): 7,
    }
    assert file.where(("b", "nothing", "here")).endswith("p.yaml:3")
    assert read(tmp_path, "").where(("a",)).endswith("p.yaml:1")


@pytest.mark.parametrize("word", ["on", "off", "no", "yes", "1", "null", "1.5", "2020-01-01", "~"])
def test_keys_are_text_whatever_yaml_would_make_of_them(tmp_path: Path, word: str) -> None:
    assert read(tmp_path, f"{word}: 1\n").data == {word: 1}


def test_all_keys_given_twice_are_named(tmp_path: Path) -> None:
    assert faults(tmp_path, "a: 1\nb: {c: 1, c: 2}\na: 2\na: 3\n") == [
        "/p.yaml:2: key 'c' is given twice (first on line 2)",
        "/p.yaml:3: key 'a' is given twice (first on line 1)",
        "/p.yaml:4: key 'a' is given twice (first on line 1)",
    ]


def test_merge_keys(tmp_path: Path) -> None:
    text = (
        "base: &base {a: 1, b: 2}\nmore: &more\n  b: 3\n  c: 4\none:\n  b: 9\n  <<: *base\ntwo: {<<: [*base, *more]}\n"
    )
    file = read(tmp_path, text)
    assert file.data["one"] == yaml.safe_load(text)["one"] == {"a": 1, "b": 9}
    assert file.data["two"] == yaml.safe_load(text)["two"] == {"a": 1, "b": 2, "c": 4}
    assert file.where(("one", "a")).endswith(":1")
    assert file.where(("one", "b")).endswith(":6")
    assert file.where(("two", "c")).endswith(":4")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: [1,\n", "/p.yaml:2:1: not valid YAML: expected the node content, but found '<stream end>'"),
        ("a: 1\n\tb: 2\n", "/p.yaml:2:1: not valid YAML: found character '\\t' that cannot start any token"),
        ("a: 1\n---\nb: 2\n", "/p.yaml:2:1: not valid YAML: but found another document"),
        ("? [a]\n: b\n", "/p.yaml:1:3: not valid YAML: a key must be plain text"),
        ("a: *b\n", "/p.yaml:1:4: not valid YAML: found undefined alias 'b'"),
        ("a: &a [*a]\n", "/p.yaml: nested too deep, or a value that contains itself"),
        ("a: " + "[" * 5000 + "]" * 5000, "/p.yaml: nested too deep, or a value that contains itself"),
        ("a: !mine {b: 1}\n", "/p.yaml:1:4: not valid YAML: the tag '!mine' means nothing here"),
        ("a: 2020-13-01\n", "/p.yaml:1:4: not valid YAML: '2020-13-01': month must be in 1..12"),
        ("a: 1\nb: 'x\x07'\n", "/p.yaml:2: not valid YAML: special characters are not allowed"),
        ("a: {<<: 3}\n", "/p.yaml:1:9: not valid YAML: << takes a mapping or a list of mappings"),
    ],
)
def test_what_is_not_a_profile_is_refused_with_its_place(tmp_path: Path, text: str, fault: str) -> None:
    assert faults(tmp_path, text) == [fault]


def test_python_objects_are_refused(tmp_path: Path) -> None:
    assert "python/object" in faults(tmp_path, "a: !!python/object/apply:os.getcwd []\n")[0]


def test_aliases_cannot_blow_up(tmp_path: Path) -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    text += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    assert "more than 100000 values" in faults(tmp_path, text)[0]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "cannot read" in faults(tmp_path, b"\xff\xfe\x00")[0]
    with pytest.raises(ProfileError, match="cannot read"):
        yamlfile.load(tmp_path / "missing.yaml")
    with pytest.raises(ProfileError, match="cannot read"):
        yamlfile.load(tmp_path)


@SAME_PATH
@given(PLAIN)
def test_it_reads_what_pyyaml_reads(tmp_path: Path, value: Any) -> None:
    text = yaml.safe_dump(value)
    assert read(tmp_path, text).data == yaml.safe_load(text)


@SAME_PATH
@given(st.text(alphabet="ab:-[]{}&*!<>'\"#|?, \n\t1.~=%@", max_size=40))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    with contextlib.suppress(ProfileError):
        assert read(tmp_path, text).where(()).startswith(str(tmp_path))
