from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from specbuild.plan import Band, Interval, PolicySpec
from specbuild.runtime import policy as executed
from specbuild.runtime.policy import Situation


def bands(*pairs: tuple[int | None, int]) -> PolicySpec:
    return PolicySpec(bands=tuple(Band(max_prompt_len=limit, draft_len=length) for limit, length in pairs))


@pytest.mark.parametrize(
    ("policy", "text", "is_off", "longest"),
    [
        (PolicySpec.fixed(0), "off", True, 0),
        (PolicySpec.fixed(5), "draft_len 5", False, 5),
        (bands((20, 2), (200, 4), (None, 6)), "≤20: 2, ≤200: 4, else: 6", False, 6),
        (bands((20, 3), (None, 0)), "≤20: 3, else: 0", False, 3),
        (bands((20, 0), (None, 0)), "off", True, 0),
    ],
)
def test_a_policy_in_words(policy: PolicySpec, text: str, is_off: bool, longest: int) -> None:
    assert str(policy) == text
    assert policy.is_off is is_off
    assert policy.max_draft_len == longest


@pytest.mark.parametrize(
    "pairs",
    [
        (),
        ((20, 2),),
        ((20, 2), (20, 3), (None, 1)),
        ((20, 2), (10, 3), (None, 1)),
        ((None, 2), (None, 1)),
        ((None, 2), (20, 1)),
        ((None, -1),),
    ],
)
def test_a_policy_that_leaves_a_request_without_one_length_cannot_be_made(pairs: tuple[tuple[int | None, int]]) -> None:
    with pytest.raises(ValidationError):
        bands(*pairs)


@given(st.lists(st.integers(1, 50), unique=True, max_size=4), st.data(), st.integers(0, 60))
def test_what_a_plan_says_is_what_the_runtime_does(limits: list[int], data: st.DataObject, prompt_len: int) -> None:
    lengths = data.draw(st.lists(st.integers(0, 8), min_size=len(limits) + 1, max_size=len(limits) + 1))
    spec = bands(*zip([*sorted(limits), None], lengths, strict=True))
    policy = executed.from_bands(spec.model_dump(mode="json")["bands"])
    wanted = next(b.draft_len for b in spec.bands if b.max_prompt_len is None or prompt_len <= b.max_prompt_len)
    assert policy.draft_len(Situation(prompt_len, 0, 1)) == wanted


def test_numbers_are_finite() -> None:
    with pytest.raises(ValidationError, match="finite"):
        Interval(value=1.0, low=float("nan"), high=2.0)
