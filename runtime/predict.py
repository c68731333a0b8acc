"""Walk evidence: what any draft length would have given on the same outputs, exactly, without running it.

A round that starts behind output token s drafts ``d = min(k, max_tokens - s - 1)`` tokens and keeps the leading run of
those that stand; it emits the run and one token of the target's own. The first token comes from reading the prompt.
Accepted tokens of a round are its emitted ones less one, as the sessions count them (a round that an accepted end token
closes has no token behind it). Whether a draft stands is certain for greedy requests and has probability ``accept`` for
sampled ones, so the walk carries the probability that a round starts at s and every figure is an expectation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from specbuild.evidence import Evidence
from specbuild.plan import Candidate
from specbuild.runtime.steptimes import StepTimes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
SETTLE = 3
"""Turns until speed and requests at once agree."""


@dataclass(frozen=True)
class Walk:
    """Expected figures of one draft length, over all requests of the evidence."""

    draft_len: int
    tokens: int
    """Output tokens behind the first of each request."""
    rounds: Floats = field(repr=False)
    """float64 [requests]."""
    rounds_by_drafted: Floats = field(repr=False)
    """float64 [draft_len + 1]: rounds that drafted exactly d tokens."""
    accepted: Floats = field(repr=False)
    """float64 [draft_len]: rounds that accepted more than i tokens."""

    @property
    def tokens_per_round(self) -> float:
        """Emitted tokens of a round on average, rounds without a draft included; 1 where there is no round."""
        return self.tokens / total if (total := float(self.rounds.sum())) else 1.0

    @property
    def acceptance_per_position(self) -> tuple[float, ...]:
        """Of the rounds that drafted more than i tokens, the share that accepted more than i."""
        drafting = self.rounds_by_drafted[::-1].cumsum()[::-1][1:]
        return tuple(float(a / d) if d > 0 else 0.0 for a, d in zip(self.accepted, drafting, strict=True))

    @property
    def acceptance_length(self) -> float:
        """1 + accepted / rounds that drafted; 1 where none did."""
        drafting = float(self.rounds_by_drafted[1:].sum())
        return 1 + float(self.accepted.sum()) / drafting if drafting else 1.0


def walk(evidence: Evidence, draft_len: int, *, greedy_only: bool = False) -> Walk:
    """The expected course of every request under a fixed ``draft_len``.

    ``greedy_only``: sampled requests never draft (the fused graph runs them on the target alone).
    """
    lengths = np.diff(evidence.offsets)
    stands = _padded(evidence, lengths, int(lengths.max(initial=1)) + draft_len + 1)
    most = np.full(len(lengths), draft_len)
    if greedy_only:
        most[evidence.temperature > 0] = 0
    starts = np.zeros((len(lengths), stands.shape[1] + 1))
    starts[:, 1] = lengths > 1
    by_drafted = np.zeros(draft_len + 1)
    accepted = np.zeros(draft_len)
    for s in range(1, int(lengths.max(initial=1))):
        begun = starts[:, s] * (s < lengths)
        drafts = np.clip(evidence.max_tokens - s - 1, 0, most)
        by_drafted += np.bincount(drafts, begun, minlength=draft_len + 1)
        longest = np.minimum(drafts, lengths - s - 1)
        run = begun
        for i in range(draft_len):
            further = np.where(i < longest, run * stands[:, s + i], 0.0)
            starts[:, s + i + 1] += run - further
            accepted[i] += further.sum()
            run = further
        starts[:, s + draft_len + 1] += run
    rounds = np.where(np.arange(starts.shape[1]) < lengths[:, None], starts, 0.0)[:, 1:].sum(axis=1)
    return Walk(draft_len, int(np.maximum(lengths - 1, 0).sum()), rounds, by_drafted, accepted)


def _padded(evidence: Evidence, lengths: Ints, width: int) -> Floats:
    """float64 [requests, width]: the probability that a draft of output token t stands, if all before it do."""
    stands = np.zeros((len(lengths), width))
    inside = np.arange(width) < lengths[:, None]
    of_token = np.repeat(evidence.temperature, lengths)
    stands[inside] = np.where(of_token > 0, evidence.accept, evidence.agree)
    return stands


def candidates(
    walks: Sequence[Walk], steps: StepTimes, running: Mapping[float, float], spent_ms: float, *, thins: bool = False
) -> tuple[Candidate, ...]:
    """Evidence over step times: each walk's speed, off (the walk of length 0) among them.

    running: requests at once under off -> the share of rounds that had so many. spent_ms: what the requests of the
    evidence took under off, summed. Its part beyond off's rounds is reading prompts, their own and those of requests
    beside them; no draft length changes it. thins: requests arrive when they do (recorded times), so faster ones have
    fewer beside them (Little's law); in a closed loop they do not.
    """
    off_ms = _decode_ms(walks[0], steps, running)
    beside = max(spent_ms - off_ms, 0.0)
    found = []
    for one in walks:
        took = _decode_ms(one, steps, running)
        for _ in range(SETTLE if thins else 0):
            share = (beside + took) / max(beside + off_ms, 1e-9)
            took = _decode_ms(one, steps, {1 + (batch - 1) * share: part for batch, part in running.items()})
        found.append(
            Candidate(
                draft_len=one.draft_len,
                tokens_per_round=one.tokens_per_round,
                round_ms=took / max(float(one.rounds.sum()), 1.0),
                tpot_ms=took / max(one.tokens, 1),
                speedup=(beside + off_ms) / max(beside + took, 1e-9),
            )
        )
    return tuple(found)


def _decode_ms(one: Walk, steps: StepTimes, running: Mapping[float, float]) -> float:
    """Expected time of all rounds of a walk, summed over its requests.

    Requests that run together share their rounds, whatever each of them drafts: such a round takes as long as one in
    which all draft the mean.
    """
    drafted = one.rounds_by_drafted * np.arange(one.draft_len + 1)
    mean = float(drafted.sum()) / max(float(one.rounds_by_drafted.sum()), 1.0)
    return sum(
        share * float(rounds) * steps.round_ms(length if batch == 1 else mean, batch)
        for length, rounds in enumerate(one.rounds_by_drafted)
        for batch, share in running.items()
    )


def finalists(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The draft lengths worth replaying: the fastest, and the shortest that is predicted within 5% of it.

    Where there is no such one, the second fastest if it is within 10%. One that is predicted to lose is replayed
    alone: the plan then shows by how much.
    """
    ranked = sorted((one for one in found if one.draft_len), key=lambda one: (-one.speedup, one.draft_len))
    best = ranked[0]
    if best.speedup < 1:
        return (best,)
    near = [one for one in ranked if one.draft_len < best.draft_len and one.speedup >= 0.95 * best.speedup]
    if near:
        return best, min(near, key=lambda one: one.draft_len)
    return (best, *(one for one in ranked[1:2] if one.speedup >= 0.9 * best.speedup))
