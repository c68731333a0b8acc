"""When requests arrive: at their recorded times, or one for every one that ends."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from specbuild.profile import Traffic
from specbuild.runtime.prepare import Prepared


@dataclass(frozen=True)
class Arrivals:
    """How requests arrive."""

    kind: Literal["recorded", "closed"] = "closed"
    concurrency: int = 1
    """Requests at once in a closed loop."""
    speed: float = 1.0
    """Recorded times are divided by this."""

    @classmethod
    def of(cls, traffic: Traffic) -> Arrivals:
        """As the profile says."""
        return cls(traffic.arrivals, traffic.concurrency, traffic.speed)

    def __str__(self) -> str:
        if self.kind == "closed":
            return f"closed, {self.concurrency} at once"
        return "recorded times" if self.speed == 1 else f"recorded times, {self.speed:g} times as fast"


@dataclass(frozen=True)
class Load:
    """What is sent: the measured requests, and others that only make the load around them real."""

    requests: Sequence[Prepared]
    lead: Sequence[Prepared] = ()
    """Sent first, so that the measured ones meet a session that is already at work."""
    fillers: Sequence[Prepared] = ()
    """Sent while the last measured ones still run, in a closed loop over and over; cancelled at the end."""


@dataclass(frozen=True)
class Due:
    """A request whose time has come."""

    due_ns: int
    request: Prepared
    measured: bool


class Schedule:
    """Which request is due when; a closed loop frees a slot whenever a request ends."""

    def __init__(self, due: deque[Due], slots: deque[int] | None, fillers: Iterator[Due]) -> None:
        self._due = due
        self._slots = slots
        self._fillers = fillers

    @classmethod
    def of(cls, load: Load, arrivals: Arrivals, start: int) -> Schedule:
        """The schedule of a replay that starts at ``start`` (ns)."""
        parts = ((load.lead, False), (load.requests, True))
        if arrivals.kind == "closed":
            due = [Due(start, request, measured) for part, measured in parts for request in part]
            again = (Due(start, request.again(turn), False) for turn in itertools.count(1) for request in load.fillers)
            return cls(deque(due), deque([start] * arrivals.concurrency), again if load.fillers else iter(()))
        everyone = [(request, measured) for part, measured in (*parts, (load.fillers, False)) for request in part]
        first = min((request.arrival_ns for request, _ in everyone), default=0)
        timed = [Due(start + round((r.arrival_ns - first) / arrivals.speed), r, measured) for r, measured in everyone]
        return cls(deque(sorted(timed, key=lambda due: due.due_ns)), None, iter(()))

    @property
    def left(self) -> int:
        """Measured requests that were not taken."""
        return sum(due.measured for due in self._due)

    def take(self, now: int) -> Due | None:
        """What is due."""
        if self._slots is not None:
            return self._take_slot(self._slots)
        return self._due.popleft() if self._due and self._due[0].due_ns <= now else None

    def _take_slot(self, slots: deque[int]) -> Due | None:
        if not slots:
            return None
        due = self._due.popleft() if self._due else next(self._fillers, None)
        return due and Due(slots.popleft(), due.request, due.measured)

    def next_ns(self) -> int | None:
        """When the next is due, as far as that is known."""
        return self._due[0].due_ns if self._slots is None and self._due else None

    def hurry(self, now: int) -> None:
        """Bring the rest of the recorded times forward, so that the next is due now."""
        if self._slots is None and self._due and self._due[0].due_ns > now:
            early = self._due[0].due_ns - now
            self._due = deque(Due(due.due_ns - early, due.request, due.measured) for due in self._due)

    def ended(self, at_ns: int) -> None:
        """A request ended."""
        if self._slots is not None:
            self._slots.append(at_ns)
