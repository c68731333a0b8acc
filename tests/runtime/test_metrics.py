from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbuild.measurement import RequestTimes, Timeline
from specbuild.plan import PolicySpec
from specbuild.runtime import metrics
from specbuild.units import NS_PER_MS

OFF = PolicySpec.fixed(0)


def request(chunks, *, sent=0.0, outcome="length", name="a", drafted=None, scheduled=None):
    """Chunks as (ms, tokens)."""
    sizes = [size for _, size in chunks]
    drafted = drafted or [0] * len(chunks)
    return RequestTimes(
        id=name,
        prompt_len=4,
        scheduled_ns=round((sent if scheduled is None else scheduled) * NS_PER_MS),
        sent_ns=round(sent * NS_PER_MS),
        token_ns=np.repeat(np.array([round(time * NS_PER_MS) for time, _ in chunks], np.int64), sizes),
        tokens=np.arange(sum(sizes), dtype=np.int32),
        drafted=np.array(drafted, np.int32),
        accepted=np.array([size - 1 for size in sizes], np.int32),
        outcome=outcome,
    )


def timeline(*requests, end=1000.0, **more):
    return Timeline(tuple(requests), 0, round(end * NS_PER_MS), **more)


def test_one_token_a_chunk_gives_the_textbook_values():
    one = metrics.latency(request([(30, 1), (50, 1), (90, 1)], sent=10))
    assert (one.ttft, one.tpot, one.e2e) == (20, 30, 80)
    assert one.itl.tolist() == [20, 40]


def test_a_chunk_spreads_its_gap_over_its_tokens():
    one = metrics.latency(request([(30, 1), (60, 3), (80, 1)]))
    assert one.itl.tolist() == [10, 10, 10, 20]
    assert one.chunk.tolist() == [30, 20]
    assert one.tpot == one.itl.mean() == 12.5


@given(
    gaps=st.lists(st.floats(0.1, 50), min_size=2, max_size=60),
    cuts=st.lists(st.booleans(), min_size=60, max_size=60),
    even=st.booleans(),
)
def test_tpot_and_itl_equal_the_truth_of_token_times_whatever_the_chunks(gaps, cuts, even):
    """A server makes tokens at its own times and sends them in arbitrary chunks; the truth is what it made."""
    gaps = np.full(len(gaps), gaps[0]) if even else np.array(gaps)
    made = 5 + np.concatenate([[0], np.cumsum(gaps)])
    ends = [index for index in range(len(made)) if index == len(made) - 1 or cuts[index]]
    sizes = np.diff([-1, *ends])
    one = metrics.latency(request([(made[end], int(size)) for end, size in zip(ends, sizes, strict=True)]))
    if len(ends) == 1:
        assert np.isnan(one.tpot)
        return
    true_gaps = np.diff(made[ends[0] :])
    assert one.tpot == pytest.approx(true_gaps.mean(), rel=0.01)
    assert one.itl.mean() == pytest.approx(true_gaps.mean(), rel=0.01)
    assert len(one.itl) == len(true_gaps)
    if even:
        assert np.quantile(one.itl, 0.95) == pytest.approx(gaps[0], rel=0.01)


def test_failures_are_infinitely_slow_and_cancelled_ones_are_not_counted():
    done = [request([(10, 1), (20 + i, 1)], name=str(i)) for i in range(17)]
    late = [request([(10, 1)], outcome="timeout", name=f"t{i}") for i in range(3)]
    gone = request([], outcome="cancelled", name="gone")
    measured = metrics.measure([timeline(*done, *late, gone)], OFF, {"any": "max_throughput"})
    assert measured.requests == 20
    assert measured.quantiles_ms["e2e_p50"] == pytest.approx(29.5)
    assert "e2e_p95" not in measured.quantiles_ms
    assert measured.quantiles_ms["ttft_p50"] == 10
    assert measured.quantiles_ms["ttft_p95"] == 10  # the late ones had a first token
    assert "tpot_p95" not in measured.quantiles_ms
    assert measured.goodput_per_s["any"] == pytest.approx(17)


def test_quantiles_that_the_sample_cannot_support_are_absent():
    few = metrics.measure([timeline(*(request([(1, 1), (2, 1)], name=str(i)) for i in range(19)))], OFF, {})
    enough = metrics.measure([timeline(*(request([(1, 1), (2, 1)], name=str(i)) for i in range(20)))], OFF, {})
    assert "tpot_p90" in few.quantiles_ms
    assert "tpot_p95" not in few.quantiles_ms
    assert "tpot_p95" in enough.quantiles_ms
    assert "tpot_p99" not in enough.quantiles_ms


def test_a_budget_on_a_quantile_that_was_not_measured_is_not_met():
    measured = metrics.measure([timeline(request([(1, 1), (2, 1)]))], OFF, {})
    assert not metrics.meets_budget(measured, {"tpot_p95_ms": 1000})
    assert metrics.meets_budget(measured, "max_throughput")


def test_goodput_counts_requests_that_keep_every_limit():
    quick, slow = request([(10, 1), (20, 1)]), request([(10, 1), (90, 1)], name="b")
    budgets = {"both": {"ttft_p95_ms": 15, "tpot_p95_ms": 30}, "none": {"ttft_p95_ms": 5}, "itl": {"itl_p50_ms": 30}}
    measured = metrics.measure([timeline(quick, slow)], OFF, budgets)
    assert measured.goodput_per_s == pytest.approx({"both": 1.0, "none": 0.0, "itl": 1.0})


def test_throughput_counts_what_arrived_inside_the_window_fillers_included():
    filler = request([(100, 4), (1500, 4)], name="f", outcome="cancelled")
    part = timeline(request([(500, 2), (1000, 2)]), fillers=(filler,))
    assert metrics.tokens_per_s([part]) == 8
    assert metrics.tokens_per_s([part, part]) == 8
    assert metrics.measure([part], OFF, {}).requests == 1


def test_acceptance_is_over_rounds_that_drafted_that_far():
    one = request([(1, 1), (2, 3), (3, 1), (4, 2)], drafted=[0, 2, 2, 1])
    shares, length = metrics.acceptance([one])
    assert shares == (2 / 3, 1 / 2)
    assert length == 1 + 3 / 3
    assert metrics.tokens_per_round([one]) == 2
    assert metrics.acceptance([request([(1, 1)])]) == ((), 1.0)


def test_lag_is_how_late_requests_were_sent():
    lag = metrics.lag_ms([timeline(request([(9, 1)], sent=3, scheduled=1), request([(9, 1)], sent=5, scheduled=5))])
    assert lag == {"p50": 1.0, "max": 2.0}


def test_running_shares_count_the_requests_in_flight_at_every_round():
    one = request([(0, 1), (10, 1), (20, 1), (30, 1)])
    two = request([(15, 1), (20, 1), (60, 1)], name="b")
    assert metrics.running_shares([timeline(one, two)], 8) == pytest.approx({1.0: 2 / 5, 2.0: 3 / 5})
    assert metrics.running_shares([timeline(one, two)], 1) == {1.0: 1.0}
    assert metrics.running_shares([timeline(request([(5, 1)]))], 8) == {}
