"""Replays made of numbers: what a policy gave, without any session."""

from __future__ import annotations

import numpy as np

from specbuild.measurement import RequestTimes, Timeline
from specbuild.plan import PolicySpec
from specbuild.runtime.decide import Replayed
from specbuild.units import NS_PER_MS

TOKENS = 40


def replayed(draft_len, tpot_ms, *, outcome="length", size=1):
    """One request per TPOT, groups of ``size``; rounds of 1 + draft_len tokens where it drafts."""
    requests = [_request(f"r{i}", draft_len, tpot, outcome) for i, tpot in enumerate(tpot_ms)]
    parts = [tuple(requests[first : first + size]) for first in range(0, len(requests), size)]
    return Replayed(
        PolicySpec.fixed(draft_len), tuple(Timeline(part, 0, max(one.token_ns[-1] for one in part)) for part in parts)
    )


def _request(name, draft_len, tpot, outcome):
    step = 1 + draft_len
    ends = np.minimum(np.arange(TOKENS) // step * step + step - 1, TOKENS - 1) if draft_len else np.arange(TOKENS)
    rounds = len(np.unique(ends))
    return RequestTimes(
        id=name,
        prompt_len=8,
        scheduled_ns=0,
        sent_ns=0,
        token_ns=np.round((ends + 1) * tpot * NS_PER_MS).astype(np.int64),
        tokens=np.arange(TOKENS, dtype=np.int32),
        drafted=np.full(rounds, draft_len, np.int32),
        accepted=np.full(rounds, draft_len, np.int32),
        outcome=outcome,
    )
