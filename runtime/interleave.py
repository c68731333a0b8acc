"""Several policies over the same groups, turn by turn, so that a drifting machine treats them alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specbuild.measurement import Timeline
from specbuild.plan import PolicySpec
from specbuild.runtime.arrivals import Arrivals, Load
from specbuild.runtime.decide import Replayed
from specbuild.runtime.policy import from_bands
from specbuild.runtime.replay import REAL_CLOCK, Clock, Deadlines, replay
from specbuild.runtime.session import Session
from specbuild.units import NS_PER_S

DEADLINES = Deadlines(timeout_ns=300 * NS_PER_S)
"""A request that takes longer has timed out."""


@dataclass(frozen=True)
class Lane:
    """A session and the policy that it runs under."""

    session: Session
    policy: PolicySpec


@dataclass(frozen=True)
class Span:
    """How many groups are replayed: as many as time allows, within bounds."""

    least: int
    """Replayed whatever the time."""
    until_ns: int
    """No group begins that would probably end later, unless ``wanted`` are not done yet."""
    wanted: int = 0
    at_most_ns: int | None = None
    """Even with fewer than ``wanted``, no group begins that would probably end later."""

    def goes_on(self, done: int, now_ns: int, longest_ns: int) -> bool:
        """Whether another group should begin, if groups took ``longest_ns`` at most so far."""
        if done < self.least:
            return True
        limit = self.at_most_ns if done < self.wanted and self.at_most_ns is not None else self.until_ns
        return now_ns + longest_ns <= limit


def interleave(
    lanes: Sequence[Lane],
    groups: Sequence[Load],
    arrivals: Arrivals,
    span: Span,
    *,
    clock: Clock = REAL_CLOCK,
    on_done: Callable[[int], None] | None = None,
) -> list[Replayed]:
    """Every lane over the same groups; who begins rotates. Idle recorded time is skipped.

    Raises KeyboardInterrupt where one comes, with every request cancelled.
    """
    parts: list[list[Timeline]] = [[] for _ in lanes]
    longest = 0
    for done, group in enumerate(groups):
        begun = clock.now_ns()
        if not span.goes_on(done, begun, longest):
            break
        for turn in range(len(lanes)):
            index = (turn + done) % len(lanes)
            parts[index].append(_turn(lanes[index], group, arrivals, clock))
        longest = max(longest, clock.now_ns() - begun)
        if on_done is not None:
            on_done(done + 1)
    return [Replayed(lane.policy, tuple(found)) for lane, found in zip(lanes, parts, strict=True)]


def _turn(lane: Lane, group: Load, arrivals: Arrivals, clock: Clock) -> Timeline:
    policy = from_bands([band.model_dump() for band in lane.policy.bands])
    line = replay(lane.session, group, policy, arrivals, deadlines=DEADLINES, skip_idle=True, clock=clock)
    if line.interrupted:
        raise KeyboardInterrupt
    return line
