from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from specbuild.errors import ProfileError
from specbuild.record import Record, canonical_json, digest_of, write_atomically

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Point(Record):
    """A record with what records hold."""

    schema_version: int = Field(1, alias="schema")
    name: str
    sizes: tuple[int, ...] = ()
    ratio: float = 0.5


def test_a_record_is_frozen_and_knows_its_keys() -> None:
    point = Point(name="a")
    with pytest.raises(ValidationError, match="frozen"):
        point.name = "b"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        Point.model_validate({"name": "a", "nam": "b"})
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValidationError, match="finite"):
            Point(name="a", ratio=value)


def test_written_and_read_back(tmp_path: Path) -> None:
    point = Point(name="Größe", sizes=(1, 2), ratio=0.1)
    path = tmp_path / "deep" / "point.json"
    point.write(path)
    assert Point.read(path) == point
    assert json.loads(path.read_text())["schema"] == 1
    assert "Größe" in path.read_text(encoding="utf-8")
    assert path.read_text().endswith("}\n")


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ('{"name": 3, "sizes": ["1"], "colour": 1}', ["name", "sizes.0", "colour"]),
        ("{", ["file"]),
        ("", ["file"]),
        ("[]", ["file"]),
    ],
)
def test_every_wrong_field_is_named(tmp_path: Path, text: str, faults: list[str]) -> None:
    path = tmp_path / "point.json"
    path.write_text(text)
    with pytest.raises(ProfileError) as caught:
        Point.read(path)
    assert [fault.what.split(":")[0] for fault in caught.value.faults] == faults
    assert {fault.where for fault in caught.value.faults} == {str(path)}


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "bytes"):
        with pytest.raises(ProfileError, match="cannot read"):
            Point.read(path)


def test_the_digest_follows_the_content() -> None:
    point = Point(name="a", sizes=(1,))
    assert point.digest() == Point(sizes=(1,), name="a").digest()
    others = [Point(name="b", sizes=(1,)), Point(name="a", sizes=(1, 1)), Point(name="a", sizes=(1,), ratio=0.25)]
    assert len({point.digest(), *(other.digest() for other in others)}) == 4


@given(JSON)
def test_canonical_json_is_json_in_one_order(value: Any) -> None:
    assert json.loads(canonical_json(value)) == value
    assert canonical_json(json.loads(canonical_json(value))) == canonical_json(value)


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_the_digest_ignores_the_order_of_keys(value: dict[str, int]) -> None:
    assert digest_of(dict(reversed(value.items()))) == digest_of(value)


@given(st.lists(st.text()), st.lists(st.text()))
def test_different_lists_have_different_digests(one: list[str], two: list[str]) -> None:
    assert (digest_of(one) == digest_of(two)) == (one == two)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(_: int) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [path]


def test_readers_see_whole_files_while_many_write(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([letter]) * 50_000 for letter in b"abcd"]
    write_atomically(path, contents[0])
    writers = [
        threading.Thread(target=lambda data=data: [write_atomically(path, data) for _ in range(5)]) for data in contents
    ]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        seen.add(path.read_bytes())
    for writer in writers:
        writer.join()
    assert seen <= set(contents)
    assert [*tmp_path.iterdir()] == [path]
