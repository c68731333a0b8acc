"""From the confirming replays to a choice per budget. Pure: no clock, no file, no engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specbuild.measurement import RequestTimes, Timeline
from specbuild.plan import Candidate, Choice, Interval, Measured, PolicySpec
from specbuild.profile import Budget
from specbuild.runtime import reasons
from specbuild.runtime.metrics import FAILED, finished, measure, meets_budget
from specbuild.runtime.stats import Floats, paired_ratio
from specbuild.units import NS_PER_S

BOUND = 0.10
"""A plan is confirmed where predicted and measured tokens a round differ by no more than this share."""
EVEN = Interval(value=1.0, low=1.0, high=1.0)


@dataclass(frozen=True)
class Replayed:
    """One policy over the held-out half, a timeline for each group of requests that ran together."""

    policy: PolicySpec
    parts: tuple[Timeline, ...]

    @property
    def draft_len(self) -> int:
        """Tokens drafted a round; 0 is off."""
        return self.policy.max_draft_len

    @property
    def failed(self) -> int:
        """Requests that timed out or failed."""
        return sum(request.outcome in FAILED for part in self.parts for request in part.requests)

    @property
    def finished(self) -> list[RequestTimes]:
        """Requests that ended by themselves, with an output."""
        return [request for part in self.parts for request in part.requests if finished(request)]


@dataclass(frozen=True)
class Confirmation:
    """Everything that a decision rests on."""

    off: Replayed
    finalists: tuple[Replayed, ...]
    candidates: tuple[Candidate, ...]
    """The prediction for every draft length, off included."""
    predicted: Mapping[int, float]
    """draft_len → tokens a round, by the evidence of the requests that were replayed."""


def speedup(a: Replayed, b: Replayed, level: float = 0.95) -> Interval:
    """Output tokens per second of request time, a over b, with its interval.

    Paired by request: only requests that finished under both count. Groups are what the bootstrap resamples, because
    requests that ran together share the machine's mood; at one request at a time a group is a request.
    """
    pairs = [_sums(one, other) for one, other in zip(a.parts, b.parts, strict=True)]
    sums: Floats = np.array([pair for pair in pairs if pair[0] > 0], np.float64).reshape(-1, 4)
    if not len(sums):
        return Interval(value=0.0, low=0.0, high=1.0)
    return paired_ratio((sums[:, 0], sums[:, 1]), (sums[:, 2], sums[:, 3]), level=level)


def _sums(a: Timeline, b: Timeline) -> tuple[float, float, float, float]:
    """Tokens and seconds of the requests that finished in both."""
    others = {request.id: request for request in b.requests if finished(request)}
    both = [(one, others[one.id]) for one in a.requests if finished(one) and one.id in others]
    return (
        float(sum(len(one.tokens) for one, _ in both)),
        sum(_seconds(one) for one, _ in both),
        float(sum(len(other.tokens) for _, other in both)),
        sum(_seconds(other) for _, other in both),
    )


def _seconds(request: RequestTimes) -> float:
    return float(request.token_ns[-1] - request.sent_ns) / NS_PER_S


def against_off(seen: Confirmation) -> dict[int, Interval]:
    """draft_len → speedup over off; the intervals hold with 95% for all finalists together (Bonferroni).

    Trying several does not find a gain by chance then.
    """
    level = 1 - 0.05 / max(len(seen.finalists), 1)
    return {one.draft_len: speedup(one, seen.off, level) for one in seen.finalists}


def with_replays(seen: Confirmation) -> tuple[Candidate, ...]:
    """The prediction for every length, with the measured speedup where it was replayed."""
    intervals = against_off(seen)
    return tuple(one.model_copy(update={"replayed": intervals.get(one.draft_len)}) for one in seen.candidates)


def decide(budgets: Mapping[str, Budget], seen: Confirmation) -> dict[str, Choice]:
    """The choice for every budget.

    A finalist may be chosen where its paired interval over off lies above 1, it failed no more requests than off, and
    it keeps the budget if off does. Among those: who keeps the budget, then goodput (``max_throughput``: speedup); one
    that cannot be told from a shorter draft_len gives way to it. Otherwise off.
    """
    measured = {one.draft_len: measure(one.parts, one.policy, budgets) for one in (seen.off, *seen.finalists)}
    intervals = against_off(seen)
    return {name: _choice(name, budget, seen, measured, intervals) for name, budget in budgets.items()}


def _choice(
    name: str,
    budget: Budget,
    seen: Confirmation,
    measured: Mapping[int, Measured],
    intervals: Mapping[int, Interval],
) -> Choice:
    winner = _winner(name, budget, seen, measured, intervals)
    length = winner.draft_len
    told = reasons.Told(name, budget, length, measured, intervals, seen.candidates, seen.predicted)
    return Choice(
        policy=winner.policy,
        meets_budget=meets_budget(measured[length], budget),
        measured=measured[length],
        speedup_over_off=intervals.get(length, EVEN),
        predicted_tokens_per_round=seen.predicted[length],
        confirmed=is_confirmed(seen.predicted[length], measured[length]),
        reasons=reasons.why(told, BOUND),
    )


def _winner(
    name: str,
    budget: Budget,
    seen: Confirmation,
    measured: Mapping[int, Measured],
    intervals: Mapping[int, Interval],
) -> Replayed:
    meets = {length: meets_budget(one, budget) for length, one in measured.items()}
    able = [
        one
        for one in seen.finalists
        if intervals[one.draft_len].low > 1 and one.failed <= seen.off.failed and meets[one.draft_len] >= meets[0]
    ]
    if not able:
        return seen.off

    def merit(one: Replayed) -> tuple[bool, float, float]:
        goodput = 0.0 if isinstance(budget, str) else measured[one.draft_len].goodput_per_s[name]
        return meets[one.draft_len], goodput, intervals[one.draft_len].value

    best = max(able, key=merit)
    ties = [
        one
        for one in able
        if one.draft_len < best.draft_len and meets[one.draft_len] == meets[best.draft_len] and _tied(best, one)
    ]
    return min([best, *ties], key=lambda one: one.draft_len)


def _tied(longer: Replayed, shorter: Replayed) -> bool:
    return speedup(longer, shorter).low <= 1


def is_confirmed(predicted: float, measured: Measured) -> bool:
    """Whether the prediction agrees with the replay within ``BOUND``."""
    return abs(predicted / measured.tokens_per_round - 1) <= BOUND
