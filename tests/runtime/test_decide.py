from __future__ import annotations

import math

import numpy as np
import pytest
from made_replays import TOKENS, replayed

from specbuild.plan import Candidate, PolicySpec
from specbuild.runtime.decide import BOUND, Confirmation, Replayed, decide, speedup


def candidate(draft_len, tokens=1.0, ms=20.0, speed=1.0):
    return Candidate(draft_len=draft_len, tokens_per_round=tokens, round_ms=ms, tpot_ms=ms / tokens, speedup=speed)


CANDIDATES = tuple(candidate(k, 1 + 0.5 * k, 20 + 4 * k, (1 + 0.5 * k) * 20 / (20 + 4 * k)) for k in range(5))


def decided(off, *finalists, budgets=None, predicted=None):
    predicted = predicted or {0: 1.0} | {one.draft_len: 1.0 + one.draft_len for one in finalists}
    return decide(budgets or {"fast": "max_throughput"}, Confirmation(off, finalists, CANDIDATES, predicted))


def noisy(rng, mean, count=20, sigma=0.1):
    return mean * rng.lognormal(0, sigma, count)


def test_a_clear_gain_is_chosen_with_its_arithmetic():
    rng = np.random.default_rng(1)
    choice = decided(replayed(0, noisy(rng, 20)), replayed(3, noisy(rng, 10)))["fast"]
    assert choice.policy == PolicySpec.fixed(3)
    assert choice.meets_budget
    assert choice.confirmed
    assert 1.8 < choice.speedup_over_off.low < choice.speedup_over_off.value < choice.speedup_over_off.high < 2.2
    words = " | ".join(choice.reasons)
    assert "95% interval" in words
    assert "not 4: +0.50 tokens for +4.0 ms a round" in words
    assert "not 2: -0.50 tokens for -4.0 ms a round" in words
    assert "confirmed, the bound is 10%" in words


def test_off_wins_where_speculation_loses_and_says_the_break_even():
    rng = np.random.default_rng(2)
    choice = decided(replayed(0, noisy(rng, 10)), replayed(2, noisy(rng, 15)))["fast"]
    assert choice.policy.is_off
    assert choice.speedup_over_off.value == 1
    words = " | ".join(choice.reasons)
    assert "a round takes 28.0 ms, 1.40 passes of the target alone" in words
    assert ": slower" in words


def test_a_gain_that_the_interval_does_not_support_is_no_gain():
    rng = np.random.default_rng(3)
    choice = decided(replayed(0, noisy(rng, 10, 8, 0.5)), replayed(2, noisy(rng, 9.5, 8, 0.5)))["fast"]
    assert choice.policy.is_off
    assert "does not lie above 1" in " ".join(choice.reasons)


def test_a_tie_goes_to_the_shorter_draft():
    rng = np.random.default_rng(4)
    base = noisy(rng, 10)
    choice = decided(replayed(0, base * 2), replayed(4, base * 0.99 * rng.lognormal(0, 0.05, 20)), replayed(2, base))[
        "fast"
    ]
    assert choice.policy == PolicySpec.fixed(2)
    clear = decided(replayed(0, base * 2), replayed(4, base * 0.7), replayed(2, base))["fast"]
    assert clear.policy == PolicySpec.fixed(4)


def test_who_breaks_a_budget_that_off_keeps_is_not_chosen():
    off = replayed(0, np.full(40, 20.0))
    uneven = replayed(3, np.where(np.arange(40) < 37, 6.0, 26.0))  # faster on the whole, slow for three
    budgets = {"fast": "max_throughput", "even": {"tpot_p95_ms": 25}}
    choices = decided(off, uneven, budgets=budgets)
    assert choices["fast"].policy == PolicySpec.fixed(3)
    assert choices["even"].policy.is_off
    assert choices["even"].meets_budget
    assert "off keeps the budget and it does not" in " ".join(choices["even"].reasons)


def test_a_budget_that_nothing_keeps_gets_the_best_effort_and_says_by_how_much():
    choice = decided(
        replayed(0, np.full(20, 20.0)), replayed(3, np.full(20, 10.0)), budgets={"tight": {"tpot_p95_ms": 5}}
    )["tight"]
    assert not choice.meets_budget
    assert choice.policy == PolicySpec.fixed(3)
    assert choice.reasons[-1].startswith("tpot_p95 5 ms is not kept: off 20.0 ms, draft_len 3 1")


def test_a_quantile_beyond_the_sample_is_said_to_be_beyond_it():
    choice = decided(
        replayed(0, np.full(20, 20.0)), replayed(3, np.full(20, 10.0)), budgets={"tail": {"e2e_p99_ms": 1e6}}
    )["tail"]
    assert not choice.meets_budget
    assert choice.reasons[-1] == "e2e_p99 cannot be judged: it needs 100 requests, 20 were replayed"


def test_more_failures_than_off_disqualify():
    off, fast = replayed(0, np.full(20, 20.0)), replayed(3, np.full(20, 10.0))
    broken = replayed(3, np.full(2, 10.0), outcome="timeout")
    fast = Replayed(fast.policy, (*fast.parts[:-2], *broken.parts))
    assert decided(off, fast)["fast"].policy.is_off


def test_a_prediction_beyond_the_bound_is_not_confirmed():
    off, fast = replayed(0, np.full(20, 20.0)), replayed(3, np.full(20, 10.0))
    measured = TOKENS / 10  # ten rounds; the first chunk counts apart
    choice = decided(off, fast, predicted={0: 1.0, 3: measured * (1 + BOUND) * 1.05})["fast"]
    assert not choice.confirmed
    assert "NOT confirmed" in " ".join(choice.reasons)


def test_only_requests_that_finished_under_both_are_compared():
    a, b = replayed(0, [10.0, 10.0, 10.0, 10.0]), replayed(2, [5.0, 5.0, 5.0, 5.0])
    lost = replayed(2, [1000.0], outcome="error")
    assert speedup(b, a).value == pytest.approx(2)
    assert speedup(Replayed(b.policy, (*b.parts[:3], *lost.parts)), a).value == pytest.approx(2)


@pytest.mark.parametrize(("groups", "size"), [(12, 1), (6, 8)])
def test_off_against_itself_is_called_a_win_in_at_most_one_of_twenty(groups, size):
    """A/A with two finalists, requests of very unlike length, and a mood of the machine that a group shares."""
    rng = np.random.default_rng(groups)
    repeats, wins = 200, 0
    for _ in range(repeats):
        nature = np.repeat(rng.lognormal(0, 0.4, groups), size) * 20
        runs = [
            nature * np.repeat(rng.lognormal(0, 0.1, groups), size) * rng.lognormal(0, 0.05, groups * size)
            for _ in range(3)
        ]
        off, one, two = (replayed(k, run, size=size) for k, run in zip((0, 1, 2), runs, strict=True))
        wins += not decided(off, one, two)["fast"].policy.is_off
    assert wins / repeats <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / repeats)
    assert wins / repeats <= 0.05
