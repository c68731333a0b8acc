"""A choice in words, with its arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbuild.plan import Candidate, Interval, Measured
from specbuild.profile import Budget
from specbuild.runtime.metrics import limits_of, meets_budget, requests_needed


@dataclass(frozen=True)
class Told:
    """What the words are made of; lengths are keys, 0 is off."""

    name: str
    budget: Budget
    draft_len: int
    """The choice."""
    measured: Mapping[int, Measured]
    against_off: Mapping[int, Interval]
    candidates: Sequence[Candidate]
    predicted: Mapping[int, float]

    def candidate(self, draft_len: int) -> Candidate | None:
        """The prediction for a length; None beyond the longest."""
        return next((one for one in self.candidates if one.draft_len == draft_len), None)


def why(told: Told, bound: float) -> tuple[str, ...]:
    """Why this policy, why not one longer and one shorter; for off, the arithmetic."""
    lines = _why_off(told) if told.draft_len == 0 else _why_drafting(told, bound)
    return (*lines, *_against_the_budget(told))


def words(interval: Interval) -> str:
    """``2.31x (95% interval 2.20 to 2.43)``."""
    return f"{interval.value:.2f}x (95% interval {interval.low:.2f} to {interval.high:.2f})"


def _why_drafting(told: Told, bound: float) -> list[str]:
    length, measured, off = told.draft_len, told.measured[told.draft_len], told.measured[0]
    ours, alone = told.candidate(length), told.candidate(0)
    rates = f"{measured.output_tokens_per_s:.1f} output tokens/s, off {off.output_tokens_per_s:.1f}"
    lines = [f"{rates}: {words(told.against_off[length])}, {measured.requests} held-out requests"]
    if ours is not None and alone is not None:
        lines.append(
            f"a round takes {ours.round_ms:.1f} ms and gives {ours.tokens_per_round:.2f} tokens, "
            f"{ours.tpot_ms:.1f} ms each; the target alone takes {alone.tpot_ms:.1f} ms a token"
        )
    lines += [_why_not(told, length + 1), _why_not(told, length - 1)]
    off_by = told.predicted[length] / measured.tokens_per_round - 1
    lines.append(
        f"predicted {told.predicted[length]:.2f} tokens a round, measured {measured.tokens_per_round:.2f} "
        f"({off_by:+.0%}; {'confirmed' if abs(off_by) <= bound else 'NOT confirmed'}, the bound is {bound:.0%})"
    )
    return lines


def _why_not(told: Told, other: int) -> str:
    """One longer or one shorter than the choice: what it would add, and what it would cost."""
    ours, theirs = told.candidate(told.draft_len), told.candidate(other)
    if other == 0:
        return "not shorter: that is off"
    if ours is None or theirs is None:
        return f"not longer: limits.max_draft_len is {told.draft_len}"
    tokens, ms = theirs.tokens_per_round - ours.tokens_per_round, theirs.round_ms - ours.round_ms
    line = f"not {other}: {tokens:+.2f} tokens for {ms:+.1f} ms a round, predicted {theirs.speedup:.2f}x"
    line += f" against {ours.speedup:.2f}x"
    if other not in told.against_off:
        return line
    line += f", measured {told.against_off[other].value:.2f}x against {told.against_off[told.draft_len].value:.2f}x"
    if other > told.draft_len and told.against_off[other].value > told.against_off[told.draft_len].value:
        line += ": a tie, which goes to the shorter"
    return line


def _why_off(told: Told) -> list[str]:
    lines = []
    alone = told.candidate(0)
    for length, interval in sorted(told.against_off.items()):
        theirs = told.candidate(length)
        if theirs is not None and alone is not None:
            lines.append(_break_even(theirs, alone))
        lines.append(f"draft_len {length}: measured {words(interval)} of off{_short_of(told, length, interval)}")
    return lines


def _break_even(theirs: Candidate, alone: Candidate) -> str:
    """What a round costs in passes of the target alone, against what it gives."""
    passes = theirs.round_ms / alone.round_ms if alone.round_ms else 0.0
    verdict = "pays" if theirs.tokens_per_round > passes else "does not pay"
    return (
        f"draft_len {theirs.draft_len}: a round takes {theirs.round_ms:.1f} ms, {passes:.2f} passes of the target "
        f"alone; it pays above {passes:.2f} tokens a round, gives {theirs.tokens_per_round:.2f}: by that it {verdict}"
    )


def _short_of(told: Told, length: int, interval: Interval) -> str:
    """Why a finalist did not beat off."""
    if interval.high < 1:
        return ": slower"
    if interval.low <= 1:
        return ": the interval does not lie above 1, so it is not a gain that can be promised"
    if meets_budget(told.measured[0], told.budget) and not meets_budget(told.measured[length], told.budget):
        return ", but off keeps the budget and it does not"
    return ", but more of its requests failed"


def _against_the_budget(told: Told) -> list[str]:
    """For a budget that is not kept: which limit, and by whom how closely."""
    if meets_budget(told.measured[told.draft_len], told.budget):
        return []
    return [
        line
        for key, limit in limits_of(told.budget).items()
        if told.measured[told.draft_len].quantiles_ms.get(key, float("inf")) > limit
        for line in [_limit_words(told, key, limit)]
    ]


def _limit_words(told: Told, key: str, limit: float) -> str:
    count, least = told.measured[told.draft_len].requests, requests_needed(told.budget).get(key, 0)
    if count < least:
        return f"{key} cannot be judged: it needs {least} requests, {count} were replayed"
    found = [
        f"{'off' if length == 0 else f'draft_len {length}'} {_value(one, key)}"
        for length, one in sorted(told.measured.items())
    ]
    return f"{key} {limit:g} ms is not kept: {', '.join(found)}"


def _value(measured: Measured, key: str) -> str:
    value = measured.quantiles_ms.get(key)
    return "did not finish" if value is None else f"{value:.1f} ms"
