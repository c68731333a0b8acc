from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from collector import ask, sampled
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_engine import ToyEngine, alone

from specbuild.runtime import speculate
from specbuild.runtime.acceptance import shape
from specbuild.runtime.policy import fixed
from specbuild.runtime.speculate import Decoding, Stepwise, play_round

TARGET = ToyEngine(0)
DRAFT = TARGET.near(1, 0.4)


class Scripted:
    """Draft lengths by round; remembers what it was asked."""

    def __init__(self, lengths):
        self.lengths = list(lengths)
        self.seen = []

    def draft_len(self, situation):
        self.seen.append(situation)
        return self.lengths[(len(self.seen) - 1) % len(self.lengths)]


def start(request, target=TARGET, draft=DRAFT, eos=()):
    capacity = len(request.token_ids) + request.max_tokens
    return Decoding(request, target.open(capacity), draft.open(capacity) if draft else None, frozenset(eos))


def finish(decodings, target=TARGET, draft=DRAFT, max_draft_len=8):
    """Play rounds until all are done; the chunks of each."""
    chunks = [[] for _ in decodings]
    running = list(range(len(decodings)))
    drafter = Stepwise(draft, target.vocab_size) if draft else None
    while running:
        played = play_round([decodings[index] for index in running], target, drafter, max_draft_len)
        for index, chunk in zip(running, played, strict=True):
            if chunk is not None:
                chunks[index].append(chunk)
        running = [index for index in running if not (chunks[index] and chunks[index][-1].finish)]
    for decoding in decodings:
        target.close(decoding.target)
        if draft:
            draft.close(decoding.draft)
    return chunks


def tokens_of(chunks):
    return [token for chunk in chunks for token in chunk.token_ids]


prompts = st.lists(st.integers(0, TARGET.vocab_size - 1), min_size=1, max_size=30)
scripts = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(prompts, scripts, st.integers(1, 40)), min_size=1, max_size=5))
def test_greedy_equals_the_target_alone_whatever_the_lengths_and_neighbours(requests):
    decodings = [
        start(ask(str(i), prompt, count, Scripted(script))) for i, (prompt, script, count) in enumerate(requests)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speculate, "PASS_TOKENS", 7)  # prompts are read in parts
        all_chunks = finish(decodings)
    for (prompt, _, count), chunks in zip(requests, all_chunks, strict=True):
        assert tokens_of(chunks) == alone(TARGET, prompt, count)
        assert chunks[-1].finish == "length"
        assert all(len(chunk.token_ids) == 1 + chunk.accepted and chunk.accepted <= chunk.drafted for chunk in chunks)
        assert all(chunk.finish is None for chunk in chunks[:-1])


@settings(max_examples=40, deadline=None)
@given(prompts, scripts, st.integers(0, TARGET.vocab_size - 1))
def test_eos_ends_the_output_wherever_in_a_round_it_comes(prompt, script, eos):
    expected = alone(TARGET, prompt, 30)
    if eos in expected:
        expected = expected[: expected.index(eos) + 1]
    (chunks,) = finish([start(ask("a", prompt, 30, Scripted(script)), eos=[eos])])
    assert tokens_of(chunks) == expected
    assert chunks[-1].finish == ("stop" if expected[-1] == eos else "length")
    assert all(len(chunk.token_ids) == 1 + chunk.accepted for chunk in chunks)


def test_ignore_eos_goes_on():
    expected = alone(TARGET, [1, 2], 20)
    (chunks,) = finish([start(ask("a", [1, 2], 20, fixed(4), ignore_eos=True), eos=expected)])
    assert tokens_of(chunks) == expected


def test_a_perfect_draft_costs_few_passes():
    target = ToyEngine(0)
    finish([start(ask("a", [1, 2, 3], 41, fixed(4)), target, target.near(9, 0.0))], target, target.near(9, 0.0))
    assert target.passes == 1 + 8


def test_the_policy_is_asked_every_round_and_its_answer_is_drafted():
    policy = Scripted([0, 3, 1])
    (chunks,) = finish([start(ask("a", [1, 2, 3], 12, policy))])
    situations = policy.seen
    assert [situation.output_len for situation in situations] == list(
        np.cumsum([len(chunk.token_ids) for chunk in chunks])[:-1]
    )
    assert {situation.prompt_len for situation in situations} == {3}
    wanted = [min([0, 3, 1][i % 3], 12 - situations[i].output_len - 1) for i in range(len(situations))]
    assert [chunk.drafted for chunk in chunks] == [0, *wanted]


def test_max_draft_len_bounds_the_policy():
    (chunks,) = finish([start(ask("a", [1], 30, fixed(9)))], max_draft_len=2)
    assert max(chunk.drafted for chunk in chunks) == 2


def test_rounds_without_draft_do_not_touch_it_and_it_catches_up():
    target, draft = ToyEngine(0), ToyEngine(0)
    decoding = start(ask("a", list(range(10)), 12, Scripted([0, 0, 0, 4, 0, 4])), target, draft)
    drafter = Stepwise(draft, target.vocab_size)
    for _ in range(4):
        play_round([decoding], target, drafter, 8)
    assert draft.passes == 0
    chunk = play_round([decoding], target, drafter, 8)[0]
    assert chunk is not None
    assert (chunk.drafted, chunk.accepted) == (4, 4)


def test_long_prompts_share_a_pass_fairly(monkeypatch):
    monkeypatch.setattr(speculate, "PASS_TOKENS", 8)
    target = ToyEngine(0)
    running = start(ask("short", [1], 30), target, None)
    play_round([running], target, None, 0)
    long = start(ask("long", [1] * 20, 5), target, None)
    later = start(ask("later", [2] * 4, 5), target, None)
    came = [[chunk is not None for chunk in play_round([running, long, later], target, None, 0)] for _ in range(4)]
    assert came == [[True, False, False], [True, False, False], [True, True, True], [True, True, True]]


def test_a_failed_round_can_be_played_again():
    target, draft = ToyEngine(0), TARGET.near(1, 0.4)
    decoding = start(ask("a", [1, 2, 3], 30, fixed(4)), target, draft)
    drafter = Stepwise(draft, target.vocab_size)
    out = []
    forward = target.forward
    for number in range(40):
        target.forward = broken if number % 3 == 1 else forward
        try:
            chunk = play_round([decoding], target, drafter, 8)[0]
        except RuntimeError:
            continue
        out.extend(chunk.token_ids)
        if chunk.finish:
            break
    assert out == alone(target, [1, 2, 3], 30)


def broken(feeds):
    raise RuntimeError("the engine broke")


SMALL = ToyEngine(5, vocab=3, spread=1.0)
SMALL_DRAFT = SMALL.near(6, 1.5)
PROMPT = [0, 1]


def exact_law(length, sampling):
    """The probability of every output of the target alone."""
    law = {}
    for output in product(range(3), repeat=length):
        tokens = np.array([*PROMPT, *output])
        probs = shape(SMALL.logits(tokens, np.arange(1, len(tokens) - 1)), sampling)
        law[output] = float(np.prod(probs[np.arange(length), list(output)]))
    return law


def measured_law(length, count, draft, **settings):
    """Outputs of many sampled requests, played 50 at a time."""
    seen = Counter()
    for first in range(0, count, 50):
        requests = [
            ask(str(seed), PROMPT, length, fixed(2), sampling=sampled(seed, **settings))
            for seed in range(first, first + 50)
        ]
        decodings = [start(request, SMALL, draft) for request in requests]
        seen.update(tuple(tokens_of(chunks)) for chunks in finish(decodings, SMALL, draft))
    return {output: hits / count for output, hits in seen.items()}


def distance(measured, exact):
    return 0.5 * sum(abs(measured.get(output, 0.0) - mass) for output, mass in exact.items())


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_k": 2}, {"temperature": 1.5, "top_p": 0.8}])
def test_sampled_outputs_keep_the_law_of_the_target_alone(settings):
    exact = exact_law(4, sampled(0, **settings))
    assert sum(exact.values()) == pytest.approx(1)
    # 81 outputs, 6000 samples: the expected distance of a true sample is at most sqrt(81 / 6000) / 2 = 0.058
    assert distance(measured_law(4, 6000, SMALL_DRAFT, **settings), exact) < 0.065


def test_the_law_test_sees_a_draft_that_lies_about_its_distribution(monkeypatch):
    class Liar(Stepwise):
        def propose(self, asks):
            proposals = super().propose(asks)
            return [speculate.Proposal(p.tokens, np.full_like(p.probs, 1 / 3)) for p in proposals]

    monkeypatch.setitem(globals(), "Stepwise", Liar)
    assert distance(measured_law(4, 6000, SMALL_DRAFT), exact_law(4, sampled(0))) > 0.12


def test_a_seed_gives_the_same_output_beside_any_neighbours():
    request = ask("a", [1, 2], 20, fixed(3), sampling=sampled(7))
    (alone_chunks,) = finish([start(request)])
    others = [start(ask(str(seed), [seed], 25, fixed(2), sampling=sampled(seed))) for seed in range(3)]
    together = finish([others[0], start(request), *others[1:]])
    assert tokens_of(together[1]) == tokens_of(alone_chunks)


@pytest.mark.parametrize("draft_vocab", [10, 16])
def test_the_vocabularies_may_be_padded_differently(draft_vocab):
    target = ToyEngine(0, vocab=12)
    draft = ToyEngine(3, vocab=draft_vocab)
    for sampling in (sampled(1), sampled(2, temperature=0.0)):
        request = ask("a", [1, 2], 20, fixed(3), sampling=sampling)
        # the draft cannot read tokens that it does not have: keep the output below 10
        target.one[:, 10:] = -50.0
        (chunks,) = finish([start(request, target, draft)], target, draft)
        assert len(tokens_of(chunks)) == 20
    assert tokens_of(chunks) == alone(target, [1, 2], 20)
