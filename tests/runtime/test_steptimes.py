from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_session import VirtualClock, VirtualSession, prepared

from specbuild.errors import ServerError
from specbuild.runtime.session import Chunk
from specbuild.runtime.stats import rising
from specbuild.runtime.steptimes import ROUNDS, StepTimes, points, time_steps
from specbuild.units import NS_PER_S

PROMPTS = [prepared(f"p{i}") for i in range(3)]


def measured(round_ms, batches=(1, 4), max_draft_len=8, budget=4 * NS_PER_S, **more):
    clock = VirtualClock()
    session = VirtualSession(clock, round_ms, **more)
    return time_steps(session, PROMPTS, batches, max_draft_len, budget_ns=budget, clock=clock), session, clock


@pytest.mark.parametrize("rate", [0.0, 0.7, 1.0])
def test_the_table_is_the_time_of_rounds_whatever_is_accepted(rate):
    steps, _, _ = measured(lambda running, k: 10 + 2 * k + running, rate=rate)
    for batch in (1, 4):
        for k in range(9):
            assert steps.round_ms(k, batch) == pytest.approx(10 + 2 * k + batch)
    assert steps.round_ms(2, 2.5) == pytest.approx(16.5)
    assert steps.round_ms(8, 99) == steps.round_ms(8, 4)
    assert steps.noise == 0
    assert not steps.noisy


def test_every_setting_has_its_rounds_and_nothing_is_left_running():
    steps, session, _ = measured(lambda running, k: 10.0)
    assert steps.draft_lens == points(8) == (0, 1, 2, 3, 4, 6, 8)
    assert np.min(steps.rounds) >= 2 * ROUNDS
    assert not session.running
    assert not session.queue


def test_more_time_means_more_sweeps():
    one, two, six = (measured(lambda running, k: 10.0, budget=seconds * NS_PER_S)[0] for seconds in (0, 2, 60))
    assert [np.min(table.rounds) // np.min(one.rounds) for table in (one, two, six)] == [1, 2, 6]


def test_a_noisy_machine_is_called_noisy():
    rng = np.random.default_rng(0)
    steps, _, _ = measured(lambda running, k: 10 * rng.lognormal(0, 0.6))
    assert steps.noisy


def test_noise_never_makes_a_longer_draft_cheaper():
    steps = StepTimes(
        graph="fused",
        batch_sizes=(1,),
        draft_lens=(0, 1, 2, 4),
        median_ms=((10.0, 14.0, 12.0, 20.0),),
        spread=((0.1,) * 4,),
        rounds=((8,) * 4,),
    )
    assert [steps.round_ms(k, 1) for k in range(5)] == [10, 13, 13, 16.5, 20]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12))
def test_rising_never_falls_and_keeps_the_mean(values):
    fitted = rising(values, np.ones(len(values)))
    assert (np.diff(fitted) >= -1e-9).all()
    assert fitted.mean() == pytest.approx(np.mean(values), abs=1e-6)
    assert rising(np.sort(values), np.ones(len(values))).tolist() == pytest.approx(sorted(values))


def test_a_session_that_fails_stops_the_measurement():
    clock = VirtualClock()

    class Broken(VirtualSession):
        def _round(self, active):
            return Chunk((), self.clock.now, finish="error", detail="the KV cache is full")

    session = Broken(clock, lambda running, k: 1.0)
    with pytest.raises(ServerError, match="the KV cache is full"):
        time_steps(session, PROMPTS, [1], 2, budget_ns=0, clock=clock)


def test_long_drafts_are_sampled_at_few_points():
    assert points(1) == (0, 1)
    assert points(5) == (0, 1, 2, 3, 4, 5)
    assert points(32) == (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
