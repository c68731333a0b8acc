from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbuild.runtime.stats import needed, paired_ratio, quantile, student_t


@pytest.mark.parametrize(("q", "count"), [(0.5, 2), (0.9, 10), (0.95, 20), (0.99, 100)])
def test_a_quantile_needs_one_expected_value_above_it(q, count):
    assert needed(q) == count
    assert quantile(range(count - 1), q) is None
    assert quantile(range(count), q) == pytest.approx(np.quantile(np.arange(count), q))


@given(st.lists(st.floats(0, 1e6), min_size=20, max_size=60))
def test_quantiles_are_numpys(values):
    assert quantile(values, 0.95) == pytest.approx(float(np.quantile(values, 0.95)), abs=1e-6)


def test_an_unfinished_request_makes_the_upper_quantiles_infinite_and_leaves_the_lower():
    values = [*range(99), math.inf]
    assert quantile(values, 0.5) == pytest.approx(49.5)
    assert quantile(values, 0.99) == math.inf


@pytest.mark.parametrize(
    ("freedom", "exact"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (5, 2.5706), (10, 2.2281), (30, 2.0423)]
)
def test_student_t(freedom, exact):
    assert student_t(0.975, freedom) == pytest.approx(exact, rel=0.01)


def test_paired_ratio_is_the_ratio_of_rates():
    tokens, slow, fast = np.full(30, 64.0), np.linspace(2, 4, 30), np.linspace(1, 2, 30)
    interval = paired_ratio((tokens, fast), (tokens, slow))
    assert interval.value == pytest.approx(2)
    assert interval.low == pytest.approx(2)  # every pair has the same ratio: there is no doubt
    assert interval.high == pytest.approx(2)


def test_one_group_supports_no_claim():
    interval = paired_ratio((np.array([64.0]), np.array([1.0])), (np.array([64.0]), np.array([9.0])))
    assert interval.low < 1 < interval.high


def test_skewed_groups_widen_the_end_that_they_pull():
    rng = np.random.default_rng(3)
    tokens, even = np.full(60, 64.0), np.full(60, 2.0)
    skewed = np.where(np.arange(60) < 3, 20.0, 1.0) * rng.lognormal(0, 0.05, 60)
    interval = paired_ratio((tokens, skewed), (tokens, even), seed=5)
    assert interval == paired_ratio((tokens, skewed), (tokens, even), seed=5)
    assert interval.high != paired_ratio((tokens, skewed), (tokens, even), seed=6).high
    assert interval.high / interval.value > interval.value / interval.low > 1


@pytest.mark.parametrize("groups", [4, 6, 12, 20])
def test_the_interval_covers_the_truth(groups):
    """A/A with requests of very unlike length: the lower end lies above 1 in about 2.5% of repeats."""
    rng = np.random.default_rng(groups)
    repeats, wins = 600, 0
    for repeat in range(repeats):
        tokens = rng.lognormal(4, 0.5, groups)
        times = tokens * 0.025 * rng.lognormal(0, 0.1, (2, groups))
        wins += paired_ratio((tokens, times[0]), (tokens, times[1]), seed=repeat).low > 1
    assert wins / repeats <= 0.025 + 2 * math.sqrt(0.025 * 0.975 / repeats)
