from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbuild.plan import Band, PolicySpec
from specbuild.runtime.policy import OFF, Banded, Situation, fixed, from_bands


def at(prompt_len):
    return Situation(prompt_len=prompt_len, output_len=3, running=1)


@pytest.mark.parametrize(("prompt_len", "draft_len"), [(1, 2), (20, 2), (21, 4), (200, 4), (201, 6), (9999, 6)])
def test_the_first_band_that_fits(prompt_len, draft_len):
    assert Banded((20, 200), (2, 4, 6)).draft_len(at(prompt_len)) == draft_len


@given(st.integers(0, 5000), st.integers(0, 32))
def test_fixed_is_the_same_for_all(prompt_len, draft_len):
    assert fixed(draft_len).draft_len(at(prompt_len)) == draft_len
    assert OFF.draft_len(at(prompt_len)) == 0


def test_a_plans_bands_become_a_policy():
    spec = PolicySpec(bands=(Band(max_prompt_len=20, draft_len=2), Band(max_prompt_len=None, draft_len=5)))
    assert from_bands(spec.model_dump()["bands"]) == Banded((20,), (2, 5))
