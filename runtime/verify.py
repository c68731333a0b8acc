"""Whether a policy's greedy outputs are those of the target alone, and how near a tie they were where not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specbuild.errors import Fault, VerificationError
from specbuild.measurement import RequestTimes
from specbuild.plan import PolicySpec
from specbuild.runtime.decide import Replayed
from specbuild.runtime.evidence import Scorer, gap
from specbuild.runtime.prepare import Prepared

SHOWN = 5
"""Differing requests that are scored and shown."""
NEAR = 0.5
"""Logit gap up to which two tokens are called a near-tie: their probabilities differ by a factor of 1.65 at most."""


@dataclass(frozen=True)
class Difference:
    """Where a greedy output left that of the target alone."""

    policy: PolicySpec
    request: Prepared
    place: int
    """Index of the first output token that differs."""
    alone: tuple[int, ...]
    """The target alone: its output up to and with that token."""
    other: int | None
    """The policy's token there; None where its output had ended."""


@dataclass(frozen=True)
class Comparison:
    """Greedy requests that finished under both, and those that differ."""

    compared: int
    differing: tuple[Difference, ...]


def compare(off: Replayed, others: Sequence[Replayed], requests: Mapping[str, Prepared]) -> Comparison:
    """The first differing token of every greedy request, for every policy against off."""
    compared = 0
    found: list[Difference] = []
    for other in others:
        for alone, ours in _pairs(off, other):
            request = requests[alone.id]
            if request.sampling.greedy:
                compared += 1
                place = first_difference(alone.tokens.tolist(), ours.tokens.tolist())
                if place is not None:
                    found.append(_difference(other.policy, request, place, alone, ours))
    return Comparison(compared, tuple(found))


def _pairs(off: Replayed, other: Replayed) -> list[tuple[RequestTimes, RequestTimes]]:
    theirs = {one.id: one for one in other.finished}
    return [(one, theirs[one.id]) for one in off.finished if one.id in theirs]


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """The first index at which two outputs differ, the end of the shorter one included; None where they are equal."""
    both = min(len(a), len(b))
    places = [index for index in range(both) if a[index] != b[index]]
    return places[0] if places else None if len(a) == len(b) else both


def _difference(policy: PolicySpec, request: Prepared, place: int, a: RequestTimes, b: RequestTimes) -> Difference:
    tokens = tuple(a.tokens[: place + 1].tolist())
    return Difference(policy, request, place, tokens, int(b.tokens[place]) if place < len(b.tokens) else None)


def require_equal(seen: Comparison) -> None:
    """Raises VerificationError that names the first differing requests, if there are any."""
    if seen.differing:
        more = len(seen.differing) - SHOWN
        faults = [
            Fault(f"request {one.request.id} under {one.policy}: output token {one.place} is not the target's own")
            for one in seen.differing[:SHOWN]
        ]
        tail = [Fault(f"and {more} more")] if more > 0 else []
        fix = Fault(
            f"{len(seen.differing)} of {seen.compared} greedy outputs differ from the target alone; no plan is written",
            fix="numerics: fast accepts differences between near-ties; in exact numerics this is a defect, report it",
        )
        raise VerificationError([fix, *faults, *tail])


def note(seen: Comparison, target: Scorer | None) -> str:
    """One line on how many greedy outputs differ, and by how small a gap in the target's own logits."""
    if not seen.differing or target is None:
        return f"greedy output equals the target alone in {seen.compared} of {seen.compared} requests"
    gaps = np.array([_gap(one, target) for one in seen.differing[:SHOWN] if one.other is not None])
    line = f"greedy output differs from the target alone in {len(seen.differing)} of {seen.compared} requests"
    if not len(gaps):
        return line
    far = int(np.count_nonzero(gaps > NEAR))
    verdict = "near-ties" if not far else f"{far} of {len(gaps)} NOT a near-tie"
    return (
        f"{line}; where they part the target's logits of both tokens lie {gaps.min():.2g} to {gaps.max():.2g} apart "
        f"({verdict}, {len(gaps)} looked at)"
    )


def _gap(one: Difference, target: Scorer) -> float:
    tokens = np.array(one.alone, np.int64)
    return abs(gap(target, one.request.token_ids, tokens, one.other if one.other is not None else one.alone[-1]))
