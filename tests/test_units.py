from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbuild.units import GIB, human_bytes, human_seconds, ms


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024 * 1024 - 1, "1.0 MiB"),
        (377487360, "360.0 MiB"),
        (3 * GIB, "3.0 GiB"),
        (5000 * GIB, "5000.0 GiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_bytes(count: int, text: str) -> None:
    assert human_bytes(count) == text


@given(st.integers(0, 1 << 60))
def test_bytes_never_show_a_thousand_of_a_smaller_unit(count: int) -> None:
    value, unit = human_bytes(count).split()
    assert unit == "GiB" or float(value) < 1024


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0123, "12 ms"),
        (0.9996, "1.0 s"),
        (3.21, "3.2 s"),
        (59.96, "1 min 00 s"),
        (125, "2 min 05 s"),
        (119.99, "2 min 00 s"),
        (3599.6, "1 h 00 min"),
        (7380, "2 h 03 min"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert human_seconds(seconds) == text


@given(st.floats(0, 1e6))
def test_seconds_carry_over(seconds: float) -> None:
    text = human_seconds(seconds)
    assert not re.search(r"\b(1000 ms|60(\.0)? s|60 min)\b", text)


def test_nanoseconds_to_milliseconds() -> None:
    assert ms(1_500_000) == 1.5
