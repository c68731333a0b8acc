"""When requests arrive: at their recorded times, or one for every one that ends."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from specbuild.runtime.prepare import Prepared


@dataclass(frozen=True)
class Arrivals:
    """How requests arrive."""

    kind: Literal["recorded", "closed"] = "closed"
    concurrency: int = 1
    """Requests at once in a closed loop."""
    speed: float = 1.0
    """Recorded times are divided by this."""

    def __str__(self) -> str:
        if self.kind == "closed":
            return f"closed, {self.concurrency} at once"
        return "recorded times" if self.speed == 1 else f"recorded times, {self.speed:g} times as fast"


class Schedule:
    """Which request is due when; a closed loop frees a slot whenever a request ends."""

    def __init__(self, due: deque[tuple[int, Prepared]], slots: deque[int] | None, fillers: Iterator[Prepared]) -> None:
        self._due = due
        self._slots = slots
        self._fillers = fillers

    @classmethod
    def of(cls, requests: Sequence[Prepared], arrivals: Arrivals, start: int, fillers: Sequence[Prepared]) -> Schedule:
        """The schedule of a replay that starts at ``start`` (ns)."""
        if arrivals.kind == "closed":
            endless = (request.again(turn) for turn in itertools.count(1) for request in fillers)
            filling = endless if fillers else iter(())
            return cls(deque((start, request) for request in requests), deque([start] * arrivals.concurrency), filling)
        first = min((request.arrival_ns for request in requests), default=0)
        due = [(start + round((request.arrival_ns - first) / arrivals.speed), request) for request in requests]
        return cls(deque(sorted(due, key=lambda item: item[0])), None, iter(()))

    @property
    def left(self) -> int:
        """Measured requests that were not taken."""
        return len(self._due)

    def take(self, now: int) -> tuple[int, Prepared, bool] | None:
        """What is due: when it was, the request, and whether it is measured."""
        if self._slots is not None:
            return self._take_slot()
        if self._due and self._due[0][0] <= now:
            return (*self._due.popleft(), True)
        return None

    def _take_slot(self) -> tuple[int, Prepared, bool] | None:
        if not self._slots:
            return None
        if self._due:
            return self._slots.popleft(), self._due.popleft()[1], True
        filler = next(self._fillers, None)
        return None if filler is None else (self._slots.popleft(), filler, False)

    def next_ns(self) -> int | None:
        """When the next is due, as far as that is known."""
        return self._due[0][0] if self._slots is None and self._due else None

    def ended(self, at_ns: int) -> None:
        """A request ended."""
        if self._slots is not None:
            self._slots.append(at_ns)
