"""What every session promises, held against both graphs on real compiled engines."""

from __future__ import annotations

import dataclasses
from contextlib import closing

import numpy as np
import pytest
from collector import Collector, ask, run, run_in_turn, sampled
from exact_law import distance, law_of_two

from specbuild.errors import ServerError
from specbuild.runtime.open import SessionSpec, open_session
from specbuild.runtime.openvino import CacheLimits, OpenVinoEngine
from specbuild.runtime.policy import OFF, Banded, fixed
from specbuild.runtime.speculate import Feed
from specbuild.units import NS_PER_MS

LONGEST = 384
LENGTHS = (5, 280, 40, 100, 20, 64, 10, 30)
"""Tokens of the prompts: one is longer than a pass reads, and together they are longer than two."""
PROMPTS = [np.random.default_rng(length).integers(4, 2000, length).tolist() for length in LENGTHS]
COUNT = 16


@pytest.fixture(scope="module")
def spec(tiny_engines):
    return SessionSpec.from_folders(
        tiny_engines.target.folder, tiny_engines.draft.folder, numerics="exact", max_batch_size=8, max_seq_len=LONGEST
    )


@pytest.fixture(scope="module", params=["fused", "orchestrated"])
def session(request, spec):
    with closing(open_session(dataclasses.replace(spec, graph=request.param))) as running:
        assert running.graph == request.param
        yield running


@pytest.fixture(scope="module")
def target(spec):
    return OpenVinoEngine(spec.target, numerics="exact", cache=CacheLimits(LONGEST))


@pytest.fixture(scope="module")
def answers(target):
    """The greedy answers of the target alone, by plain passes: no session, no loop of ours."""
    return [greedy(target, prompt, COUNT) for prompt in PROMPTS]


def greedy(engine, prompt, count):
    cache = engine.open(len(prompt) + count)
    tokens, out = np.array(prompt), []
    for _ in range(count):
        (logits,) = engine.forward([Feed(cache, tokens, 1)])
        tokens = logits.argmax(axis=1)
        out.append(int(tokens[0]))
    engine.close(cache)
    return out


def requests(policy, count=8):
    return [ask(str(index), PROMPTS[index], COUNT, policy, ignore_eos=True) for index in range(count)]


def outputs(collector, asked):
    return [collector.tokens(request.id) for request in asked]


@pytest.mark.parametrize("draft_len", [0, 1, 3, 8])
def test_greedy_answers_are_those_of_the_target_alone(session, answers, draft_len):
    asked = requests(fixed(draft_len))
    collector = run(session, asked)
    assert outputs(collector, asked) == answers
    assert all(bool(collector.drafted(request.id)) == (draft_len > 0) for request in asked)


def test_one_at_a_time_answers_as_eight_at_once(session, answers):
    asked = requests(fixed(4))
    assert outputs(run_in_turn(session, asked), asked) == answers


def test_requests_that_join_later_change_nothing(session, answers):
    asked = requests(fixed(4))
    collector = Collector()
    for first, second in zip(asked[::2], asked[1::2], strict=True):
        collector.submit(session, first)
        collector.submit(session, second)
        collector.wait([first.id], chunks=2)
    collector.wait([request.id for request in asked])
    assert outputs(collector, asked) == answers


def test_chunks_add_up(session):
    asked = requests(fixed(4))
    collector = run(session, asked)
    for request in asked:
        chunks = collector.chunks[request.id]
        assert len(collector.tokens(request.id)) == COUNT
        assert [chunk.finish for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
        assert (chunks[0].drafted, len(chunks[0].token_ids)) == (0, 1)
        for chunk in chunks:
            assert chunk.accepted <= chunk.drafted <= 4
            assert len(chunk.token_ids) == 1 + chunk.accepted
        times = [chunk.t_ns for chunk in chunks]
        assert times == sorted(times)
    accepted = sum(chunk.accepted for chunks in collector.chunks.values() for chunk in chunks)
    drafted = sum(chunk.drafted for chunks in collector.chunks.values() for chunk in chunks)
    assert 0.2 < accepted / drafted < 0.95


def test_both_graphs_play_the_same_rounds(spec):
    def rounds(graph):
        asked = requests(fixed(3), count=4)
        with closing(open_session(dataclasses.replace(spec, graph=graph, preload_alone=False))) as running:
            collector = run(running, asked)
        return [
            [(chunk.token_ids, chunk.drafted, chunk.accepted, chunk.finish) for chunk in collector.chunks[request.id]]
            for request in asked
        ]

    assert rounds("fused") == rounds("orchestrated")


def test_the_policy_sees_the_prompt(session):
    policy = Banded((20, 200), (1, 0, 3))
    asked = requests(policy)
    collector = run(session, asked)
    longest = [max(chunk.drafted for chunk in collector.chunks[request.id]) for request in asked]
    assert longest == [1 if length <= 20 else 0 if length <= 200 else 3 for length in LENGTHS]


@pytest.mark.parametrize("policy", [OFF, fixed(3)], ids=["off", "3"])
def test_eos_ends_the_output_and_is_its_last_token(session, spec, answers, policy):
    eos = answers[2][9]
    change = {"graph": session.graph, "eos_ids": (eos, 1999), "preload_alone": False}
    with closing(open_session(dataclasses.replace(spec, **change))) as running:
        collector = run(running, [ask("a", PROMPTS[2], 40, policy)])
    assert collector.tokens("a") == answers[2][: answers[2].index(eos) + 1]
    assert collector.finish("a") == "stop"
    assert all(len(chunk.token_ids) == 1 + chunk.accepted for chunk in collector.chunks["a"])


@pytest.mark.parametrize("count", [1, 2, 7])
def test_max_tokens_is_exact(session, count):
    collector = run(session, [ask("a", PROMPTS[0], count, fixed(8), ignore_eos=True)])
    assert len(collector.tokens("a")) == count
    assert collector.finish("a") == "length"


def test_the_output_ends_at_max_seq_len(session):
    collector = run(session, [ask("a", [7] * (LONGEST - 12), 1000, fixed(8), ignore_eos=True)])
    assert len(collector.tokens("a")) == 12
    assert collector.finish("a") == "length"


@pytest.mark.parametrize(
    ("prompt", "why"), [([7] * LONGEST, "max_seq_len"), ([], "empty"), ([2048], "vocabulary"), ([-1], "vocabulary")]
)
def test_a_prompt_that_cannot_run_ends_with_the_reason(session, prompt, why):
    (chunk,) = run(session, [ask("a", prompt, 4, fixed(2))]).chunks["a"]
    assert (chunk.finish, chunk.token_ids) == ("error", ())
    assert why in chunk.detail


def test_cancel_ends_one_and_not_the_others(session, answers):
    collector = Collector()
    handle = collector.submit(session, ask("cancelled", [9, 8], 300, fixed(3), ignore_eos=True))
    others = requests(fixed(3), count=3)
    for request in others:
        collector.submit(session, request)
    collector.wait(["cancelled"], chunks=1)
    handle.cancel()
    collector.wait(["cancelled", *(request.id for request in others)])
    assert collector.finish("cancelled") == "cancelled"
    assert 0 < len(collector.tokens("cancelled")) < 300
    assert outputs(collector, others) == answers[:3]


def test_many_cancelled_requests_leave_room_for_others(session, answers):
    collector = Collector()
    for number in range(24):
        collector.submit(session, ask(str(number), [9] * 40, 300, fixed(number % 3))).cancel()
    asked = requests(fixed(2))
    assert outputs(run(session, asked), asked) == answers


@pytest.mark.parametrize("policy", [OFF, fixed(3)], ids=["off", "3"])
def test_a_time_out_ends_it(session, policy):
    collector = run(session, [ask("a", [9, 8], 300, policy, ignore_eos=True, timeout_ns=40 * NS_PER_MS)])
    assert collector.finish("a") == "timeout"
    assert len(collector.tokens("a")) < 300


def test_more_requests_than_the_batch_holds_all_end(session):
    asked = [ask(str(number), PROMPTS[0], 6, fixed(number % 3), ignore_eos=True) for number in range(20)]
    assert {tuple(tokens) for tokens in outputs(run(session, asked), asked)} == {
        tuple(run(session, asked[:1]).tokens("0"))
    }


def test_a_sampled_request_repeats_under_its_seed(session):
    def output(seed):
        return run(session, [ask("a", PROMPTS[2], 30, fixed(3), sampling=sampled(seed), ignore_eos=True)]).tokens("a")

    assert output(5) == output(5)
    assert output(5) != output(6)


def test_sampled_requests_keep_the_law_of_the_target(session, target):
    """Never drafted by the fused graph; drafted and kept exact by the orchestrated one."""
    asked = [
        ask(str(seed), PROMPTS[0], 4, fixed(2), sampling=sampled(seed, top_k=4), ignore_eos=True) for seed in range(400)
    ]
    collector = run(session, asked)
    # 16 outputs, 400 samples: the expected distance of a true sample is at most sqrt(16 / 400) / 2 = 0.1
    law = law_of_two(target, PROMPTS[0], sampled(0, top_k=4))
    assert distance(outputs(collector, asked), law) < 0.12
    assert any(collector.drafted(request.id) for request in asked) == (session.graph == "orchestrated")


def test_close_ends_what_is_in_flight(spec, session):
    collector = Collector()
    running = open_session(dataclasses.replace(spec, graph=session.graph, preload_alone=False))
    collector.submit(running, ask("a", [9, 8], 300, fixed(2), ignore_eos=True))
    collector.wait(["a"], chunks=1)
    running.close()
    assert collector.finish("a") == "cancelled"
    with pytest.raises(ServerError):
        collector.submit(running, ask("b", [1]))


@pytest.mark.parametrize("change", [{"speculative": False}, {"draft": None}], ids=["off", "no draft"])
def test_a_session_without_draft_never_drafts(session, spec, answers, change):
    asked = requests(fixed(4), count=3)
    with closing(open_session(dataclasses.replace(spec, graph=session.graph, **change))) as running:
        collector = run(running, asked)
    assert not any(collector.drafted(request.id) for request in asked)
    assert outputs(collector, asked) == answers[:3]
