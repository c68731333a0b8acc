from __future__ import annotations

import logging
import threading
import time
from contextlib import closing

import pytest
from collector import PATIENCE_S, Collector, ask, run, sampled
from toy_engine import ToyEngine, alone

from specbuild.errors import ServerError
from specbuild.runtime.orchestrated import OrchestratedSession
from specbuild.runtime.policy import fixed
from specbuild.runtime.session import Limits
from specbuild.runtime.speculate import Stepwise
from specbuild.units import NS_PER_MS


def session(target=None, draft=None, *, batch=4, longest=200, eos=()):
    target = target or ToyEngine(0)
    draft = draft or target.near(1, 0.4)
    limits = Limits(batch, longest, target.vocab_size)
    return OrchestratedSession(target, Stepwise(draft, target.vocab_size), limits, 8, eos)


class Gated(ToyEngine):
    """Every pass waits for the test."""

    def __init__(self, seed):
        super().__init__(seed)
        self.gate = threading.Semaphore(0)
        self.reached = threading.Semaphore(0)

    def forward(self, feeds):
        self.reached.release()
        assert self.gate.acquire(timeout=PATIENCE_S)
        return super().forward(feeds)

    def open_gate(self):
        self.gate.release(1_000_000)


def test_many_requests_get_the_answers_of_the_target_alone():
    requests = [ask(str(i), [i, 1, 2], 20 + i, fixed(i % 4)) for i in range(12)]
    with closing(session()) as running:
        collector = run(running, requests)
    for request in requests:
        assert collector.tokens(request.id) == alone(ToyEngine(0), request.token_ids, request.max_tokens)
        assert [chunk.finish for chunk in collector.chunks[request.id]].count(None) == len(
            collector.chunks[request.id]
        ) - 1
        times = [chunk.t_ns for chunk in collector.chunks[request.id]]
        assert times == sorted(times)


def test_requests_take_turns():
    target = Gated(0)
    collector = Collector()
    with closing(session(target, ToyEngine(1))) as running:
        for name in "abc":
            collector.submit(running, ask(name, [1], 30))
        target.open_gate()
        collector.wait("abc")
    order = sorted((chunk.t_ns, name) for name in "abc" for chunk in collector.chunks[name])
    middle = [name for _, name in order[9:60]]
    assert max(middle.count(name) for name in "abc") - min(middle.count(name) for name in "abc") <= 3


def test_what_does_not_fit_the_batch_queues():
    target = Gated(0)
    collector = Collector()
    with closing(session(target, batch=2)) as running:
        for name in "abc":
            collector.submit(running, ask(name, [1], 3))
        target.reached.acquire(timeout=PATIENCE_S)
        target.open_gate()
        collector.wait("abc")
    assert collector.chunks["c"][0].t_ns > collector.chunks["a"][-1].t_ns


def test_without_a_free_cache_a_request_waits():
    target = ToyEngine(0, caches=1)
    with closing(session(target, ToyEngine(1, caches=1))) as running:
        collector = run(running, [ask(name, [1, 2], 10, fixed(2)) for name in "abc"])
    assert {collector.finish(name) for name in "abc"} == {"length"}
    assert target.free == 1


def test_without_a_free_draft_cache_the_targets_is_given_back():
    target, draft = ToyEngine(0), ToyEngine(1, caches=1)
    with closing(session(target, draft)) as running:
        collector = run(running, [ask(name, [1, 2], 10, fixed(2)) for name in "abc"])
    assert {collector.finish(name) for name in "abc"} == {"length"}
    assert (target.free, draft.free) == (64, 1)


def test_cancel_while_running_and_while_queued():
    target = Gated(0)
    collector = Collector()
    with closing(session(target, batch=1)) as running:
        first = collector.submit(running, ask("running", [1], 100))
        second = collector.submit(running, ask("queued", [1], 100))
        collector.submit(running, ask("other", [1], 3))
        target.reached.acquire(timeout=PATIENCE_S)
        first.cancel()
        second.cancel()
        target.open_gate()
        collector.wait(["running", "queued", "other"])
        first.cancel()  # after its end: nothing happens
    assert collector.finish("running") == collector.finish("queued") == "cancelled"
    assert collector.tokens("queued") == []
    assert collector.tokens("other") == alone(ToyEngine(0), [1], 3)


def test_time_out_counts_from_submission():
    target = Gated(0)
    collector = Collector()
    with closing(session(target, batch=1)) as running:
        collector.submit(running, ask("running", [1], 100, timeout_ns=20 * NS_PER_MS))
        collector.submit(running, ask("queued", [1], 100, timeout_ns=20 * NS_PER_MS))
        target.reached.acquire(timeout=PATIENCE_S)
        time.sleep(0.03)
        target.open_gate()
        collector.wait(["running", "queued"])
    assert collector.finish("running") == collector.finish("queued") == "timeout"


def test_an_engine_error_ends_the_request_that_caused_it_only():
    target = ToyEngine(0)
    target.poison = 11
    with closing(session(target)) as running:
        collector = run(running, [ask("bad", [1, 11], 10), ask("good", [1, 2], 10, fixed(3))])
    assert collector.finish("bad") == "error"
    assert collector.chunks["bad"][-1].detail == "the engine broke"
    assert collector.tokens("good") == alone(ToyEngine(0), [1, 2], 10)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "why"),
    [
        ([], 5, "empty"),
        ([1] * 200, 5, "max_seq_len"),
        ([12], 5, "vocabulary"),
        ([-1], 5, "vocabulary"),
        ([1], 0, "max_t"),
    ],
)
def test_what_can_never_run_is_refused(prompt, max_tokens, why):
    with closing(session()) as running:
        collector = run(running, [ask("bad", prompt, max_tokens), ask("good", [1], 2)])
    (chunk,) = collector.chunks["bad"]
    assert (chunk.finish, chunk.token_ids) == ("error", ())
    assert why in chunk.detail
    assert collector.finish("good") == "length"


def test_the_output_ends_at_max_seq_len():
    with closing(session(longest=50)) as running:
        collector = run(running, [ask("a", [1] * 30, 1000, fixed(8))])
    assert collector.tokens("a") == alone(ToyEngine(0), [1] * 30, 20)
    assert collector.finish("a") == "length"


def test_eos_ends_the_output():
    expected = alone(ToyEngine(0), [1, 2], 30)
    with closing(session(eos=[expected[7]])) as running:
        collector = run(running, [ask("a", [1, 2], 30, fixed(3)), ask("b", [1, 2], 30, fixed(3), ignore_eos=True)])
    assert collector.tokens("a") == expected[: expected.index(expected[7]) + 1]
    assert collector.finish("a") == "stop"
    assert collector.tokens("b") == expected


def test_without_a_seed_outputs_differ():
    with closing(session()) as running:
        collector = run(running, [ask(name, [1], 40, fixed(2), sampling=sampled(None)) for name in "ab"])
    assert collector.tokens("a") != collector.tokens("b")


def test_a_callback_that_raises_is_logged_and_stops_only_its_request(caplog):
    def fails(chunk):
        raise ValueError("a bug of the caller")

    collector = Collector()
    with closing(session()) as running, caplog.at_level(logging.ERROR):
        running.submit(ask("bad", [1], 100), fails)
        collector.submit(running, ask("good", [1, 2], 30))
        collector.wait(["good"])
    assert collector.finish("good") == "length"
    assert "the callback of request bad raised" in caplog.text
    assert "a bug of the caller" in caplog.text


def test_close_ends_what_is_in_flight_and_takes_no_more():
    collector = Collector()
    running = session(batch=1, longest=100_000)  # longer than any wait of this thread
    collector.submit(running, ask("running", [1], 90_000))
    collector.submit(running, ask("queued", [1], 90_000))
    collector.wait(["running"], chunks=1)
    running.close()
    running.close()
    assert collector.finish("running") == collector.finish("queued") == "cancelled"
    with pytest.raises(ServerError, match="closed"):
        collector.submit(running, ask("late", [1]))


def test_close_from_a_callback_does_not_wait_for_itself():
    running = session()
    done = threading.Event()

    def close(chunk):
        running.close()
        if chunk.finish:
            done.set()

    running.submit(ask("a", [1], 50), close)
    assert done.wait(PATIENCE_S)


def test_a_bug_in_the_loop_ends_every_request_and_the_session(monkeypatch):
    raised = []
    monkeypatch.setattr(threading, "excepthook", lambda failure: raised.append(failure.exc_value))

    class Buggy:
        def draft_len(self, situation):
            raise KeyError("a bug of ours")

    collector = Collector()
    running = session(batch=1)
    collector.submit(running, ask("a", [1], 50, Buggy()))
    collector.submit(running, ask("b", [1], 50))
    collector.wait("ab")
    assert [collector.finish(name) for name in "ab"] == ["error", "error"]
    assert "worker failed" in collector.chunks["a"][-1].detail
    with pytest.raises(ServerError):
        collector.submit(running, ask("late", [1]))
    running.close()
    assert isinstance(raised[0], KeyError)
