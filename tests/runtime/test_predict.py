from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_session import VirtualClock, VirtualSession, agreement, prepared

from specbuild.evidence import Evidence
from specbuild.plan import Candidate
from specbuild.runtime import metrics
from specbuild.runtime.arrivals import Arrivals, Load
from specbuild.runtime.policy import fixed
from specbuild.runtime.predict import candidates, finalists, walk
from specbuild.runtime.replay import replay
from specbuild.runtime.steptimes import StepTimes

END = 0


def evidence(accept, *, max_tokens, temperature=0.0):
    """Evidence of requests whose tokens have these acceptances (0 or 1 for greedy ones)."""
    lengths = [len(one) for one in accept]
    flat = np.concatenate([np.asarray(one, np.float32) for one in accept])
    return Evidence(
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        prompt_len=np.ones(len(accept), np.int32),
        max_tokens=np.asarray(max_tokens, np.int32),
        temperature=np.full(len(accept), temperature, np.float32),
        agree=flat.astype(bool),
        accept=flat,
        entropy=np.zeros(len(flat), np.float32),
        identity={},
    )


def brute_force(agree, max_tokens, draft_len):
    """Play the rounds of one greedy request: (rounds, accepted per position, rounds by drafted)."""
    out, rounds = 1, 0
    accepted, by_drafted = np.zeros(draft_len), np.zeros(draft_len + 1)
    while out < len(agree):
        drafted = max(min(draft_len, max_tokens - out - 1), 0)
        run = 0
        while run < drafted and out + run < len(agree) and agree[out + run]:
            run += 1
        emitted = min(run + 1, len(agree) - out)
        accepted[: emitted - 1] += 1
        by_drafted[drafted] += 1
        out += emitted
        rounds += 1
    return rounds, accepted, by_drafted


@given(
    st.lists(st.tuples(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(0, 9)), min_size=1, max_size=6),
    st.integers(0, 9),
)
def test_greedy_walks_equal_playing_every_round(requests, draft_len):
    agree = [one for one, _ in requests]
    limits = [len(one) + spare for one, spare in requests]  # a spare: the output ended by itself
    found = walk(evidence(agree, max_tokens=limits), draft_len)
    expected = [brute_force(one, limit, draft_len) for one, limit in zip(agree, limits, strict=True)]
    assert found.rounds.tolist() == pytest.approx([rounds for rounds, _, _ in expected])
    assert found.accepted.tolist() == pytest.approx(np.sum([accepted for _, accepted, _ in expected], axis=0).tolist())
    assert found.rounds_by_drafted.tolist() == pytest.approx(np.sum([by for _, _, by in expected], axis=0).tolist())


@pytest.mark.parametrize("draft_len", [0, 1, 3, 6])
def test_a_walk_predicts_what_a_session_does(draft_len):
    clock = VirtualClock()
    requests = [prepared(f"r{i}", max_tokens=10 + i) for i in range(20)]
    session = VirtualSession(clock, lambda running, k: 1.0)
    line = replay(session, Load(requests), fixed(draft_len), Arrivals("closed", 3), clock=clock)
    agree = [agreement(request.token_ids, request.max_tokens, 0.7) for request in requests]
    found = walk(evidence(agree, max_tokens=[request.max_tokens for request in requests]), draft_len)
    shares, length = metrics.acceptance(line.requests)
    assert found.acceptance_per_position == pytest.approx(shares)
    assert found.acceptance_length == pytest.approx(length)
    assert found.tokens_per_round == pytest.approx(metrics.tokens_per_round(line.requests))


def random_model(rng, vocab, depth):
    """A distribution for every prefix; END ends."""
    return {
        prefix: rng.dirichlet(np.full(vocab, 0.7))
        for length in range(depth)
        for prefix in itertools.product(range(vocab), repeat=length)
    }


def outputs(p, max_tokens, prefix=(), mass=1.0):
    """Every output of the target alone with its probability."""
    if prefix and (len(prefix) == max_tokens or prefix[-1] == END):
        yield prefix, mass
        return
    for token, share in enumerate(p[prefix]):
        yield from outputs(p, max_tokens, (*prefix, token), mass * share)


def speculate(p, q, draft_len, max_tokens, prefix, mass, totals):
    """Expected rounds and accepted tokens of speculative sampling from ``prefix`` on, by full enumeration."""
    if len(prefix) == max_tokens or prefix[-1] == END:
        return
    drafted = min(draft_len, max_tokens - len(prefix) - 1)
    totals["rounds"] += mass
    _position(p, q, draft_len, max_tokens, prefix, (), drafted, mass, totals)


def _position(p, q, draft_len, max_tokens, prefix, run, drafted, mass, totals):
    here = prefix + run
    if run and run[-1] == END:  # an accepted end token: nothing follows, and it counts as the round's own
        totals["accepted"] += mass * (len(run) - 1)
        return
    if len(run) == drafted:
        totals["accepted"] += mass * len(run)
        for token, share in enumerate(p[here]):
            speculate(p, q, draft_len, max_tokens, (*here, token), mass * share, totals)
        return
    theirs, ours = p[here], q[here]
    stands = np.minimum(theirs, ours)
    for token, share in enumerate(stands):
        _position(p, q, draft_len, max_tokens, prefix, (*run, token), drafted, mass * share, totals)
    rest = np.maximum(theirs - ours, 0)
    totals["accepted"] += mass * rest.sum() * len(run)
    for token, share in enumerate(rest):
        if share:
            speculate(p, q, draft_len, max_tokens, (*here, token), mass * share, totals)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_sampled_walks_equal_full_enumeration_of_speculative_sampling(seed, draft_len):
    """Small random models: the expectation over the target's outputs is that over all drafts and all their fates."""
    vocab, max_tokens = 3, 4
    rng = np.random.default_rng(seed)
    p, q = random_model(rng, vocab, max_tokens), random_model(rng, vocab, max_tokens)
    exact = {"rounds": 0.0, "accepted": 0.0}
    for token, share in enumerate(p[()]):
        speculate(p, q, draft_len, max_tokens, (token,), share, exact)
    rounds = accepted = 0.0
    for output, mass in outputs(p, max_tokens):
        accept = [min(1.0, q[output[:t]][token] / p[output[:t]][token]) for t, token in enumerate(output)]
        found = walk(evidence([accept], max_tokens=[max_tokens], temperature=0.8), draft_len)
        rounds += mass * float(found.rounds.sum())
        accepted += mass * float(found.accepted.sum())
    assert rounds == pytest.approx(exact["rounds"], rel=1e-5)
    assert accepted == pytest.approx(exact["accepted"], rel=1e-5, abs=1e-9)


def test_sampled_requests_do_not_draft_on_the_fused_graph():
    one = evidence([[1.0] * 9], max_tokens=[9], temperature=0.8)
    assert walk(one, 3).tokens_per_round == pytest.approx(8 / 2)
    assert walk(one, 3, greedy_only=True).tokens_per_round == 1
    assert walk(one, 3, greedy_only=True).acceptance_length == 1


def test_requests_of_one_token_have_no_round():
    found = walk(evidence([[True], [True]], max_tokens=[1, 5]), 2)
    assert found.rounds.tolist() == [0, 0]
    assert found.tokens_per_round == 1
    assert found.acceptance_per_position == (0.0, 0.0)


def candidate(draft_len, speed):
    return Candidate(draft_len=draft_len, tokens_per_round=1, round_ms=1, tpot_ms=1, speedup=speed)


@pytest.mark.parametrize(
    ("speeds", "chosen"),
    [
        ([1.0, 1.4, 1.9, 2.0, 1.95], [3, 2]),  # the shortest within 5%
        ([1.0, 1.4, 1.7, 2.0, 1.85], [3, 4]),  # else the second within 10%
        ([1.0, 1.4, 1.7, 2.0, 1.5], [3]),
        ([1.0, 0.9, 0.8], [1]),  # predicted to lose: the best alone
        ([1.0, 1.2], [1]),
    ],
)
def test_finalists_are_the_best_and_what_is_near_it(speeds, chosen):
    found = [candidate(draft_len, speed) for draft_len, speed in enumerate(speeds)]
    assert [one.draft_len for one in finalists(found)] == chosen


def steps(medians, batches=(1,)):
    lengths = tuple(range(len(medians[0])))
    flat = tuple((1.0,) * len(lengths) for _ in batches)
    return StepTimes(
        graph="fused",
        batch_sizes=batches,
        draft_lens=lengths,
        median_ms=tuple(map(tuple, medians)),
        spread=flat,
        rounds=tuple((9,) * len(lengths) for _ in batches),
    )


def test_candidates_are_rounds_times_their_time_and_what_lies_beside():
    one = evidence([[True] * 9], max_tokens=[9])
    walks = [walk(one, draft_len) for draft_len in (0, 3)]
    off, three = candidates(walks, steps([[10.0, 12.0, 14.0, 16.0]]), {1: 1.0}, spent_ms=100.0)
    assert (off.tokens_per_round, off.round_ms, off.tpot_ms, off.speedup) == (1, 10, 10, 1)
    assert three.round_ms == 16  # two rounds that draft three each: 8 tokens behind the first
    assert three.tpot_ms == 4
    assert three.speedup == pytest.approx((20 + 80) / (20 + 32))


def test_requests_that_run_together_share_their_rounds():
    """A request that never drafts waits for the drafts of those beside it."""
    both = evidence([[True] * 9, [False] * 9], max_tokens=[9, 9])
    walks = [walk(both, draft_len) for draft_len in (0, 3)]
    table = steps([[10.0, 12.0, 14.0, 16.0], [10.0, 30.0, 50.0, 70.0]], batches=(1, 2))
    _, alone = candidates(walks, table, {1: 1.0}, spent_ms=0.0)
    _, shared = candidates(walks, table, {2: 1.0}, spent_ms=0.0)
    drafted, rounds = 3 + 3 + 3 * 5 + 2 + 1, 2 + 8
    assert shared.round_ms == pytest.approx(10 + 20 * drafted / rounds)
    assert alone.round_ms == pytest.approx((7 * 16 + 14 + 12 + 10) / rounds)


def test_at_recorded_times_faster_requests_have_fewer_beside_them():
    """Little's law at its fixed point: requests at once beside one's own shrink as the time of a request does."""
    one = evidence([[True] * 41], max_tokens=[41])
    table = steps([[10.0, 12.0, 14.0, 16.0], [20.0, 30.0, 40.0, 50.0]], batches=(1, 3))
    walks = [walk(one, draft_len) for draft_len in (0, 3)]
    _, closed = candidates(walks, table, {3: 1.0}, spent_ms=0.0)
    off, thinned = candidates(walks, table, {3: 1.0}, spent_ms=0.0, thins=True)
    assert off.speedup == pytest.approx(1)
    assert closed.round_ms == pytest.approx(50)
    assert thinned.speedup > closed.speedup
    running = 1 + 2 / thinned.speedup
    assert thinned.round_ms == pytest.approx(16 + (running - 1) / 2 * 34, rel=0.05)
