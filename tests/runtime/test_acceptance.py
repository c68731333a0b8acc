from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from specbuild.runtime import acceptance
from specbuild.runtime.acceptance import Verdict, draw, greedy, shape
from specbuild.runtime.session import Sampling

VOCAB = 6
logits_arrays = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 4), st.integers(2, 40)), elements=st.floats(-20, 20, width=32), unique=True
)


def test_greedy_keeps_the_leading_run_and_adds_the_targets_own():
    logits = np.eye(VOCAB, dtype=np.float32)[[3, 1, 4, 2]]
    assert greedy(np.array([3, 1, 4]), logits) == Verdict(3, 2)
    assert greedy(np.array([3, 0, 4]), logits) == Verdict(1, 1)
    assert greedy(np.array([0, 1, 4]), logits) == Verdict(0, 3)
    assert greedy(np.array([], np.int64), logits[:1]) == Verdict(0, 3)


@given(st.lists(st.integers(0, 3), max_size=8), st.data())
def test_greedy_equals_its_definition(drafted, data):
    choices = data.draw(st.lists(st.integers(0, 3), min_size=len(drafted) + 1, max_size=len(drafted) + 1))
    logits = np.eye(4, dtype=np.float32)[choices]
    accepted = 0
    while accepted < len(drafted) and drafted[accepted] == choices[accepted]:
        accepted += 1
    assert greedy(np.array(drafted, np.int64), logits) == Verdict(accepted, choices[accepted])


def law_of_first_token(rule, p, q, count, seed):
    """The measured law of the first token that a round with one drafted token yields."""
    rng = np.random.default_rng(seed)
    counts = np.zeros(len(q))
    for _ in range(count):
        drafted = draw(q, rng)
        verdict = rule(np.array([drafted]), q[None], np.stack([p, p]), rng)
        counts[drafted if verdict.accepted else verdict.token] += 1
    return counts / count


def distance(measured, exact):
    return 0.5 * np.abs(measured - exact).sum()


@pytest.mark.parametrize("seed", range(3))
def test_sampled_keeps_the_targets_law(seed):
    p, q = np.random.default_rng(seed).dirichlet(np.full(VOCAB, 0.5), 2)
    count = 20_000
    # the expected distance of a true sample is at most sqrt(vocab / count) / 2 = 0.009
    assert distance(law_of_first_token(acceptance.sampled, p, q, count, seed), p) < 0.02


def test_the_law_test_sees_a_wrong_rule():
    """Drawing again from p instead of max(p - q, 0) is what OpenVINO GenAI does; it is far outside the bound."""

    def wrong(drafted, q, p, rng):
        verdict = acceptance.sampled(drafted, q, p, rng)
        return verdict if verdict.accepted else Verdict(0, draw(p[0], rng))

    p, q = np.random.default_rng(0).dirichlet(np.full(VOCAB, 0.5), 2)
    assert distance(law_of_first_token(wrong, p, q, 20_000, 0), p) > 0.1


def test_sampled_accepts_everything_when_draft_and_target_agree():
    p = np.random.default_rng(1).dirichlet(np.ones(VOCAB), 4)
    rng = np.random.default_rng(2)
    for _ in range(200):
        drafted = np.array([draw(row, rng) for row in p[:3]])
        assert acceptance.sampled(drafted, p[:3], p, rng).accepted == 3


def test_sampled_never_accepts_what_the_target_forbids():
    q = np.array([[0.5, 0.5, 0.0]])
    p = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    rng = np.random.default_rng(3)
    assert {acceptance.sampled(np.array([1]), q, p, rng) for _ in range(50)} == {Verdict(0, 0)}
    assert {acceptance.sampled(np.array([0]), q, p, rng) for _ in range(50)} == {Verdict(1, 2)}


class Fixed:
    """A generator that always gives one number."""

    def __init__(self, value):
        self.value = value

    def random(self):
        return self.value


@given(hnp.arrays(np.float64, st.integers(1, 20), elements=st.floats(0, 1)), st.floats(0, 1, exclude_max=True))
def test_draw_never_gives_a_token_without_weight(weights, value):
    weights[0] += 1e-9
    assert weights[draw(weights, Fixed(value))] > 0
    assert weights[draw(weights, Fixed(np.nextafter(1.0, 0.0)))] > 0


def reference_shape(row, sampling):
    """One row, written out as the warpers of transformers do it: temperature, top_k, top_p."""
    row = row.astype(np.float64) / sampling.temperature
    if sampling.top_k:
        least = sorted(row)[-min(sampling.top_k, len(row))]
        row = np.where(row < least, -np.inf, row)
    probs = np.exp(row - row.max())
    probs /= probs.sum()
    if sampling.top_p < 1:
        kept, mass = [], 0.0
        for index in sorted(range(len(row)), key=lambda index: -probs[index]):
            kept.append(index)
            mass += probs[index]
            if mass > sampling.top_p:
                break
        probs = np.where(np.isin(np.arange(len(row)), kept), probs, 0.0)
    return probs / probs.sum()


@given(logits_arrays, st.floats(0.1, 3), st.integers(0, 50), st.floats(0.05, 1))
def test_shape_equals_the_reference(logits, temperature, top_k, top_p):
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    expected = np.stack([reference_shape(row, sampling) for row in logits])
    np.testing.assert_allclose(shape(logits, sampling), expected, atol=1e-9)


def test_shape_leaves_its_input_alone_and_survives_large_logits():
    logits = np.array([[1e4, 0.0, -1e4]], np.float32)
    before = logits.copy()
    np.testing.assert_array_equal(shape(logits, Sampling(temperature=0.5, top_p=0.9)), [[1.0, 0.0, 0.0]])
    np.testing.assert_array_equal(logits, before)
