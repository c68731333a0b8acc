"""Walk evidence: what any draft length would have given on the same outputs, exactly, without running it.

A round that starts behind output token s drafts ``d = min(k, max_tokens - s - 1)`` tokens and keeps the leading run of
those that stand; it emits the run and one token of the target's own. The first token comes from reading the prompt.
Accepted tokens of a round are its emitted ones less one, as the sessions count them (a round that an accepted end token
closes has no token behind it). Whether a draft stands is certain for greedy requests and has probability ``accept`` for
sampled ones, so the walk carries the probability that a round starts at s and every figure is an expectation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from specbuild.evidence import Evidence

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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
