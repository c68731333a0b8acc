from __future__ import annotations

import time
from queue import SimpleQueue

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_session import EOS, VirtualClock, VirtualSession, answer, prepared

from specbuild.errors import ServerError
from specbuild.runtime.arrivals import Arrivals, Load
from specbuild.runtime.policy import OFF, fixed
from specbuild.runtime.replay import REAL_CLOCK, Deadlines, replay
from specbuild.runtime.session import Chunk
from specbuild.units import NS_PER_MS, NS_PER_S

CLOSED = Arrivals("closed", 1)


def session(clock, **more):
    return VirtualSession(clock, lambda running, draft_len: 10.0 + draft_len, **more)


def test_a_closed_loop_keeps_its_concurrency_and_every_token():
    clock = VirtualClock()
    batch: list[int] = []
    virtual = VirtualSession(clock, lambda running, k: batch.append(running) or 10.0)
    requests = [prepared(f"r{i}", max_tokens=4 + i) for i in range(9)]
    line = replay(virtual, Load(requests), OFF, Arrivals("closed", 3), clock=clock)
    assert max(batch) == 3
    assert [one.id for one in line.requests] == [one.id for one in requests]
    for one, request in zip(line.requests, requests, strict=True):
        assert one.tokens.tolist() == answer(request.token_ids, request.max_tokens).tolist()
        assert one.outcome == "length"
        assert one.sent_ns == one.scheduled_ns
    assert line.unsent == 0
    assert line.end_ns == max(one.token_ns[-1] for one in line.requests)


@given(st.lists(st.floats(0, 3), min_size=1, max_size=12), st.sampled_from([0.5, 1.0, 4.0]))
def test_an_open_loop_sends_at_the_recorded_times(arrivals, speed):
    clock = VirtualClock()
    requests = [prepared(f"r{i}", arrival_ns=round(at * NS_PER_S)) for i, at in enumerate(arrivals)]
    line = replay(session(clock), Load(requests), OFF, Arrivals("recorded", speed=speed), clock=clock)
    first = min(request.arrival_ns for request in requests)
    due = sorted(round((request.arrival_ns - first) / speed) for request in requests)
    assert [one.sent_ns - line.start_ns for one in line.requests] == pytest.approx(due, abs=1)
    assert all(one.outcome == "length" for one in line.requests)


def test_rounds_are_recorded_with_what_was_drafted_and_accepted():
    clock = VirtualClock()
    request = prepared("a", max_tokens=12)
    (one,) = replay(session(clock, rate=1.0), Load([request]), fixed(3), CLOSED, clock=clock).requests
    assert one.drafted.tolist() == [0, 3, 3, 2]  # 1 + 4 + 4 + 3 tokens
    assert one.accepted.tolist() == [0, 3, 3, 2]
    assert len(np.unique(one.token_ns)) == 4


def test_warm_up_runs_before_and_is_not_kept():
    clock = VirtualClock()
    virtual = session(clock)
    line = replay(virtual, Load([prepared("a")]), OFF, CLOSED, warmup=[prepared("w1"), prepared("w2")], clock=clock)
    assert virtual.seen == ["w1", "w2", "a"]
    assert [one.id for one in line.requests] == ["a"]
    assert line.start_ns == line.requests[0].scheduled_ns > clock.now - line.end_ns


def test_fillers_keep_the_load_until_the_last_measured_request_ends():
    clock = VirtualClock()
    batch: list[int] = []
    virtual = VirtualSession(clock, lambda running, k: batch.append(running) or 10.0)
    requests = [prepared(f"r{i}", max_tokens=8 + 8 * i) for i in range(4)]
    line = replay(
        virtual, Load(requests, fillers=[prepared("f", max_tokens=10)]), OFF, Arrivals("closed", 4), clock=clock
    )
    assert len(line.requests) == 4
    assert {one.id.split("#")[0] for one in line.fillers} == {"f"}
    rounds_while_measured = 32
    assert set(batch[:rounds_while_measured]) == {4}
    assert [one.outcome for one in line.requests] == ["length"] * 4


def test_time_outs_and_errors_are_outcomes_with_a_reason():
    clock = VirtualClock()
    virtual = session(clock)
    deadlines = Deadlines(timeout_ns=50 * NS_PER_MS)
    line = replay(
        virtual,
        Load([prepared("long", max_tokens=400), prepared("b", max_tokens=2)]),
        OFF,
        CLOSED,
        deadlines=deadlines,
        clock=clock,
    )
    assert [one.outcome for one in line.requests] == ["timeout", "length"]
    assert line.requests[0].detail == "too slow"
    assert len(line.requests[0].tokens)


def test_a_session_that_refuses_is_an_outcome():
    clock = VirtualClock()

    class Closed(VirtualSession):
        def submit(self, request, on_chunk):
            raise ServerError("the session is closed")

    line = replay(Closed(clock, lambda running, k: 1.0), Load([prepared("a"), prepared("b")]), OFF, CLOSED, clock=clock)
    assert [(one.outcome, one.detail) for one in line.requests] == [("error", "the session is closed")] * 2


def test_a_session_that_never_answers_is_a_time_out():
    clock = VirtualClock()

    class Silent(VirtualSession):
        def submit(self, request, on_chunk):
            return super().submit(request, lambda chunk: None)

    line = replay(
        Silent(clock, lambda running, k: 10.0),
        Load([prepared("a")]),
        OFF,
        CLOSED,
        deadlines=Deadlines(NS_PER_S),
        clock=clock,
    )
    assert line.requests[0].outcome == "timeout"
    assert "never ended" in line.requests[0].detail


def test_a_hard_end_cancels_and_counts_what_was_not_sent():
    clock = VirtualClock()
    requests = [prepared(f"r{i}", max_tokens=20) for i in range(10)]
    deadlines = Deadlines(end_after_ns=500 * NS_PER_MS)
    line = replay(session(clock), Load(requests), OFF, CLOSED, deadlines=deadlines, clock=clock)
    outcomes = [one.outcome for one in line.requests]
    assert outcomes == ["length"] * (len(outcomes) - 1) + ["cancelled"]
    assert len(outcomes) + line.unsent == 10
    assert line.unsent > 5
    assert "the replay ended after 500 ms" in line.requests[-1].detail
    assert line.end_ns - line.start_ns == 500 * NS_PER_MS


def test_an_interrupt_leaves_a_readable_part():
    clock = VirtualClock()
    clock.interrupt_at = clock.now + 300 * NS_PER_MS
    requests = [prepared(f"r{i}", max_tokens=10) for i in range(10)]
    line = replay(session(clock), Load(requests), OFF, CLOSED, clock=clock)
    assert line.interrupted
    assert [one.outcome for one in line.requests][:2] == ["length", "length"]
    assert line.requests[-1].outcome == "cancelled"
    assert len(line.requests) + line.unsent == 10


def test_an_end_token_ends_a_request():
    clock = VirtualClock()

    def short(tokens, count):
        return np.array([5, 6, EOS, *range(10, 10 + count)])[:count]

    virtual = session(clock, answer=short, rate=1.0)
    (ended,) = replay(virtual, Load([prepared("a")]), fixed(4), CLOSED, clock=clock).requests
    assert (ended.tokens.tolist(), ended.outcome) == ([5, 6, EOS], "stop")


def test_idle_time_is_skipped_when_asked():
    clock = VirtualClock()
    requests = [prepared(f"r{i}", arrival_ns=i * 3600 * NS_PER_S) for i in range(3)]
    line = replay(session(clock), Load(requests), OFF, Arrivals("recorded"), skip_idle=True, clock=clock)
    assert line.end_ns - line.start_ns < NS_PER_S
    assert [one.sent_ns - one.scheduled_ns for one in line.requests] == [0, 0, 0]


def test_the_real_clock_wakes_for_an_event_and_for_a_time():
    inbox = SimpleQueue()
    begun = REAL_CLOCK.now_ns()
    assert REAL_CLOCK.wait(inbox, begun + 2 * NS_PER_MS) is None
    assert REAL_CLOCK.now_ns() >= begun + 2 * NS_PER_MS
    inbox.put((0, Chunk((), 0)))
    assert REAL_CLOCK.wait(inbox, None) == (0, Chunk((), 0))
    assert time.perf_counter_ns() >= REAL_CLOCK.now_ns() - NS_PER_S


def test_a_lead_makes_the_measured_requests_meet_a_session_at_work():
    clock = VirtualClock()
    load = Load([prepared("a"), prepared("b")], lead=[prepared(f"l{i}", max_tokens=4 + 4 * i) for i in range(3)])
    line = replay(session(clock), load, OFF, Arrivals("closed", 3), clock=clock)
    assert [one.id for one in line.requests] == ["a", "b"]
    assert [one.id for one in line.fillers] == ["l0", "l1", "l2"]
    first = line.fillers[0]
    assert line.start_ns == line.requests[0].sent_ns == first.token_ns[-1]


def test_recorded_fillers_arrive_at_their_own_times_until_the_measured_ones_end():
    clock = VirtualClock()
    requests = [prepared("a", max_tokens=40)]
    fillers = [prepared(f"f{i}", arrival_ns=i * 200 * NS_PER_MS) for i in range(1, 9)]
    line = replay(session(clock), Load(requests, fillers=fillers), OFF, Arrivals("recorded"), clock=clock)
    assert [one.outcome for one in line.requests] == ["length"]
    assert [one.sent_ns - line.start_ns for one in line.fillers][:2] == [200 * NS_PER_MS, 400 * NS_PER_MS]
    assert len(line.fillers) < 8
    assert line.unsent == 0
