from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbuild.errors import ProfileError
from specbuild.evidence import Evidence


def evidence(**changes: Any) -> Evidence:
    """Two requests with 3 and 2 output tokens."""
    fields: dict[str, Any] = {
        "offsets": np.array([0, 3, 5], np.int64),
        "prompt_len": np.array([7, 9], np.int32),
        "max_tokens": np.array([8, 8], np.int32),
        "temperature": np.array([0, 0.5], np.float32),
        "agree": np.array([1, 0, 1, 1, 0], np.bool_),
        "accept": np.array([1, 0.5, 1, 0.25, 0], np.float32),
        "entropy": np.array([0, 1, 2, 3, 4], np.float32),
        "identity": {"pair": "ab", "trace": "cd"},
    }
    return Evidence(**{**fields, **changes})


def same(one: Evidence, two: Evidence) -> bool:
    pairs = [(getattr(one, f.name), getattr(two, f.name)) for f in dataclasses.fields(Evidence)]
    return all(np.array_equal(a, b) and getattr(a, "dtype", 0) == getattr(b, "dtype", 0) for a, b in pairs)


def test_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "evidence.npz"
    evidence().write(path)
    assert same(Evidence.read(path), evidence())
    assert Evidence.read(path).digest() == evidence().digest()
    assert evidence().requests == 2


def test_evidence_of_nothing(tmp_path: Path) -> None:
    none = {"int32": np.array([], np.int32), "float32": np.array([], np.float32), "bool": np.array([], np.bool_)}
    empty = evidence(
        offsets=np.array([0], np.int64),
        prompt_len=none["int32"],
        max_tokens=none["int32"],
        temperature=none["float32"],
        agree=none["bool"],
        accept=none["float32"],
        entropy=none["float32"],
    )
    empty.write(tmp_path / "evidence.npz")
    assert Evidence.read(tmp_path / "evidence.npz").requests == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offsets": np.array([0, 4, 3], np.int64)}, "never fall"),
        ({"offsets": np.array([1, 3, 5], np.int64)}, "start at 0"),
        ({"offsets": np.array([], np.int64)}, "start at 0"),
        ({"offsets": np.array([0, 3, 5], np.int32)}, "offsets is int32"),
        ({"agree": np.array([1, 0, 1], np.bool_)}, r"agree is bool \(3,\), not bool \(5,\)"),
        ({"prompt_len": np.array([7], np.int32)}, "prompt_len is int32"),
        ({"accept": np.zeros(5, np.float64)}, "accept is float64"),
        ({"entropy": np.zeros((5, 1), np.float32)}, "entropy is float32"),
    ],
)
def test_arrays_that_do_not_belong_together(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evidence(**changes)


def test_the_digest_is_of_everything() -> None:
    digests = {
        evidence().digest(),
        evidence(identity={"pair": "ab", "trace": "ce"}).digest(),
        evidence(offsets=np.array([0, 2, 5], np.int64)).digest(),
        evidence(prompt_len=np.array([9, 7], np.int32)).digest(),
        evidence(max_tokens=np.array([7, 9], np.int32)).digest(),
        evidence(temperature=np.array([0, 0.25], np.float32)).digest(),
        evidence(agree=np.zeros(5, np.bool_)).digest(),
        evidence(accept=evidence().entropy, entropy=evidence().accept).digest(),
    }
    assert len(digests) == 8
    assert evidence(identity={"trace": "cd", "pair": "ab"}).digest() == evidence().digest()


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=80, deadline=None
)
@given(st.integers(0, 10_000), st.integers(0, 255), st.booleans())
def test_a_damaged_file_is_refused_or_reads_the_same(tmp_path: Path, place: int, byte: int, cut: bool) -> None:
    data = bytearray(evidence().to_bytes())
    place %= len(data)
    if cut:
        del data[place:]
    else:
        data[place] = byte
    path = tmp_path / "evidence.npz"
    path.write_bytes(data)
    try:
        found = Evidence.read(path)
    except ProfileError as error:
        assert error.faults[0].where == str(path)  # noqa: PT017 - either outcome is right
        return
    assert same(found, evidence())


@pytest.mark.parametrize("content", [None, b"", b"not a zip", b"\x93NUMPY"])
def test_what_is_no_evidence(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "evidence.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ProfileError, match="not evidence"):
        Evidence.read(path)


def test_an_array_is_no_evidence(tmp_path: Path) -> None:
    np.save(tmp_path / "evidence.npy", np.arange(3))
    with pytest.raises(ProfileError, match="not evidence"):
        Evidence.read(tmp_path / "evidence.npy")
