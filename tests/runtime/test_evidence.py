from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_session import prepared

from specbuild.evidence import Evidence
from specbuild.runtime.acceptance import shape
from specbuild.runtime.evidence import Output, gap, gather
from specbuild.runtime.session import Sampling


class Bigram:
    """A model whose logits depend on the last token; scores in chunks of any size."""

    def __init__(self, seed, vocab=50, chunk=7):
        self.table = np.random.default_rng(seed).normal(0, 2, (vocab, vocab)).astype(np.float32)
        self.chunk = chunk

    def score(self, tokens, start=0):
        rows = self.table[tokens[start:]]
        for first in range(0, len(rows), self.chunk):
            yield rows[first : first + self.chunk]


def output(name, count, sampling, vocab=50):
    rng = np.random.default_rng(len(name))
    request = prepared(name, max_tokens=count, sampling=sampling)
    request = type(request)(name, tuple(rng.integers(0, vocab, 6).tolist()), count, sampling, 0)
    return Output(request, rng.integers(0, vocab, count))


@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=4),
    st.sampled_from([Sampling(), Sampling(0.8), Sampling(0.7, 0.9, 5), Sampling(1.3, 1.0, 3)]),
)
def test_evidence_is_the_rule_applied_token_by_token(counts, sampling):
    draft, target = Bigram(1), Bigram(2)
    outputs = [output(f"r{i}", count, sampling) for i, count in enumerate(counts)]
    found = gather(outputs, draft, target, {"pair": "x"})
    assert found.requests == len(counts)
    assert np.diff(found.offsets).tolist() == counts
    at = 0
    for one in outputs:
        sequence = [*one.request.token_ids, *one.tokens.tolist()]
        for place in range(len(one.request.token_ids), len(sequence)):
            last, token = sequence[place - 1], sequence[place]
            assert found.agree[at] == (draft.table[last].argmax() == token)
            if sampling.greedy:
                assert found.accept[at] == found.agree[at]
            else:
                q, p = (shape(model.table[[last]], sampling)[0][token] for model in (draft, target))
                assert found.accept[at] == pytest.approx(min(1, q / p) if p else 0, rel=1e-5)
            raw = shape(draft.table[[last]], Sampling(1.0))[0]
            assert found.entropy[at] == pytest.approx(-(raw * np.log(raw)).sum(), rel=1e-4)
            at += 1


def test_greedy_evidence_needs_no_target_and_sampled_evidence_does():
    draft = Bigram(1)
    assert gather([output("a", 3, Sampling())], draft, None, {}).requests == 1
    with pytest.raises(ValueError, match="target"):
        gather([output("a", 3, Sampling(0.8))], draft, None, {})


def test_a_target_token_outside_the_drafts_vocabulary_cannot_be_accepted():
    one = output("a", 4, Sampling(0.8))
    one.tokens[1] = 49  # the target's head is padded further than the draft's
    draft, target = Bigram(1, vocab=50), Bigram(2, vocab=50)
    narrow = Bigram(1, vocab=50)
    narrow.table = draft.table[:, :49]
    found = gather([one], narrow, target, {})
    assert found.accept[1] == 0


def test_evidence_survives_its_file(tmp_path):
    found = gather([output("a", 5, Sampling()), output("bb", 3, Sampling())], Bigram(1), None, {"pair": "x"})
    found.write(tmp_path / "evidence.npz")
    again = Evidence.read(tmp_path / "evidence.npz")
    assert again.digest() == found.digest()
    assert again.identity == {"pair": "x"}


def test_the_gap_of_a_token_over_itself_is_nothing_and_over_a_lesser_is_positive():
    target = Bigram(2)
    one = output("a", 5, Sampling())
    last = int(one.tokens[-2])
    best, second = np.argsort(-target.table[last])[:2]
    one.tokens[-1] = best
    assert gap(target, one.request.token_ids, one.tokens, int(best)) == 0
    expected = target.table[last][best] - target.table[last][second]
    assert gap(target, one.request.token_ids, one.tokens, int(second)) == pytest.approx(float(expected))
