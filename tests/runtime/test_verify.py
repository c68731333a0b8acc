from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_replays import replayed
from virtual_pair import VirtualScorer
from virtual_session import answer, prepared

from specbuild.errors import VerificationError
from specbuild.runtime import verify
from specbuild.runtime.session import Sampling

GREEDY = Sampling()


def with_tokens(one, outputs):
    """The same replay, a request a part, with these outputs."""
    parts = [
        replace(part, requests=(replace(part.requests[0], tokens=np.array(said, np.int32)),))
        for part, said in zip(one.parts, outputs, strict=True)
    ]
    return replace(one, parts=tuple(parts))


@pytest.mark.parametrize(
    ("a", "b", "place"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1], [1, 3], 1), ([1, 3], [1], 1), ([], [], None)],
)
def test_the_first_difference(a, b, place):
    assert verify.first_difference(a, b) == place


def compared(sampling=GREEDY):
    requests = {f"r{i}": prepared(f"r{i}", max_tokens=40, sampling=sampling) for i in range(3)}
    said = [answer(request.token_ids, 40).tolist() for request in requests.values()]
    other = [list(one) for one in said]
    other[1][5] = 7
    other[2] = other[2][:30]
    off = with_tokens(replayed(0, [10.0] * 3), said)
    return verify.compare(off, [with_tokens(replayed(2, [5.0] * 3), other)], requests)


def test_every_greedy_request_is_compared_and_the_first_differing_token_kept():
    seen = compared()
    assert seen.compared == 3
    assert [(one.request.id, one.place, one.other) for one in seen.differing] == [("r1", 5, 7), ("r2", 30, None)]
    assert len(seen.differing[0].alone) == 6


def test_sampled_requests_are_not_compared():
    assert compared(Sampling(0.8)).compared == 0


def test_exact_names_the_requests():
    with pytest.raises(VerificationError) as raised:
        verify.require_equal(compared())
    words = str(raised.value)
    assert "2 of 3 greedy outputs differ" in words
    assert "request r1 under draft_len 2: output token 5" in words


def test_the_note_says_how_far_apart_the_tokens_are():
    assert verify.note(verify.Comparison(4, ()), None) == "greedy output equals the target alone in 4 of 4 requests"
    words = verify.note(compared(), VirtualScorer(None))
    assert words.startswith("greedy output differs from the target alone in 2 of 3 requests")
    assert "9 to 9 apart (1 of 1 NOT a near-tie, 1 looked at)" in words
