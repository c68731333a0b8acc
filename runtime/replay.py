"""Send prepared requests to a session as the traffic did, and keep when every token came back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Protocol

import numpy as np

from specbuild.clock import now_ns
from specbuild.errors import SpecbuildError
from specbuild.measurement import RequestTimes, Timeline
from specbuild.runtime.arrivals import Arrivals, Due, Load, Schedule
from specbuild.runtime.policy import Policy
from specbuild.runtime.prepare import Prepared
from specbuild.runtime.session import Chunk, Generate, Handle, Session
from specbuild.units import NS_PER_S, human_seconds

GRACE_NS = 5 * NS_PER_S
"""How long a session may take to end a request after its time-out or a cancel."""
Event = tuple[int, Chunk]
Inbox = SimpleQueue[Event]


class Clock(Protocol):
    """Reads the time, and waits for an event or for a time, whichever is first."""

    def now_ns(self) -> int:
        """The time."""

    def wait(self, inbox: Inbox, until_ns: int | None) -> Event | None:
        """The next event, or None once ``until_ns`` has come."""


class RealClock:
    """The one clock of the process."""

    def now_ns(self) -> int:
        """The time."""
        return now_ns()

    def wait(self, inbox: Inbox, until_ns: int | None) -> Event | None:
        """The next event, or None once ``until_ns`` has come."""
        try:
            if until_ns is None:
                return inbox.get()
            return inbox.get(timeout=max(until_ns - now_ns(), 0) / NS_PER_S)
        except Empty:
            return None


REAL_CLOCK = RealClock()


@dataclass(frozen=True)
class Deadlines:
    """When a request and the whole replay end at the latest."""

    timeout_ns: int | None = None
    """Of one request, from sending; the session ends it."""
    end_after_ns: int | None = None
    """Of the replay, from its start: what is in flight is cancelled, the rest is not sent."""


@dataclass
class _Flight:
    """A request that was sent."""

    id: str
    prompt_len: int
    scheduled_ns: int
    sent_ns: int
    measured: bool
    handle: Handle | None = None
    reason: str = ""
    """Why it was cancelled."""
    chunks: list[Chunk] = field(default_factory=list)

    def times(self) -> RequestTimes:
        last = self.chunks[-1]
        carried = [chunk for chunk in self.chunks if chunk.token_ids]
        return RequestTimes(
            id=self.id,
            prompt_len=self.prompt_len,
            scheduled_ns=self.scheduled_ns,
            sent_ns=self.sent_ns,
            token_ns=np.repeat(
                np.array([chunk.t_ns for chunk in carried], np.int64), [len(chunk.token_ids) for chunk in carried]
            ),
            tokens=np.array([token for chunk in carried for token in chunk.token_ids], np.int32),
            drafted=np.array([chunk.drafted for chunk in carried], np.int32),
            accepted=np.array([chunk.accepted for chunk in carried], np.int32),
            outcome=last.finish or "error",
            detail=last.detail or (self.reason if last.finish == "cancelled" else ""),
        )


def replay(
    session: Session,
    load: Load,
    policy: Policy,
    arrivals: Arrivals,
    *,
    warmup: Sequence[Prepared] = (),
    deadlines: Deadlines = Deadlines(),
    skip_idle: bool = False,
    clock: Clock = REAL_CLOCK,
    on_done: Callable[[int], None] | None = None,
) -> Timeline:
    """Replay a load under ``policy``; every measured request becomes an outcome, whatever happens to it.

    ``warmup`` runs before, one at a time, and is not kept. ``skip_idle`` passes over recorded time in which nothing
    runs. A KeyboardInterrupt ends the replay early and gives what
    was measured, marked ``interrupted``.
    """
    run = _Run(session, policy, clock, deadlines.timeout_ns, on_done)
    for request in warmup:
        run.begin(Due(clock.now_ns(), request, measured=False))
        while run.flying:
            run.step(None)
    run.flights.clear()
    start = clock.now_ns()
    schedule = Schedule.of(load, arrivals, start)
    end = start + deadlines.end_after_ns if deadlines.end_after_ns is not None else None
    interrupted = False
    try:
        while run.measured_done < len(load.requests) and (end is None or clock.now_ns() < end):
            if skip_idle and not run.flying:
                schedule.hurry(clock.now_ns())
            run.advance(schedule, end)
    except KeyboardInterrupt:
        interrupted = True
    stopped = clock.now_ns()
    reason = "interrupted" if interrupted else f"the replay ended after {human_seconds((stopped - start) / NS_PER_S)}"
    run.cancel_all(reason)
    return run.timeline(stopped, unsent=schedule.left, interrupted=interrupted)


@dataclass
class _Run:
    """Requests in flight, and what became of the others."""

    session: Session
    policy: Policy
    clock: Clock
    timeout_ns: int | None
    on_done: Callable[[int], None] | None
    inbox: Inbox = field(default_factory=SimpleQueue)
    flights: dict[int, _Flight] = field(default_factory=dict)
    flying: set[int] = field(default_factory=set)
    measured_done: int = 0

    def begin(self, due: Due) -> None:
        """Send a request; a session that refuses it gives an outcome, too."""
        key, request = len(self.flights), due.request
        self.flights[key] = flight = _Flight(
            request.id, len(request.token_ids), due.due_ns, self.clock.now_ns(), due.measured
        )
        self.flying.add(key)
        generate = Generate(
            request.id, request.token_ids, request.max_tokens, self.policy, request.sampling, self.timeout_ns
        )
        try:
            flight.handle = self.session.submit(generate, lambda chunk: self.inbox.put((key, chunk)))
        except SpecbuildError as error:
            self.inbox.put((key, Chunk((), self.clock.now_ns(), finish="error", detail=str(error))))

    def advance(self, schedule: Schedule, end_ns: int | None) -> None:
        """Send all that is due, then wait for one event at most."""
        while (due := schedule.take(self.clock.now_ns())) is not None:
            self.begin(due)
        times = [time for time in (schedule.next_ns(), end_ns) if time is not None]
        ended = self.step(min(times, default=None))
        if ended is not None:
            schedule.ended(ended)

    def step(self, until_ns: int | None) -> int | None:
        """Wait for one event or ``until_ns``; the time of the chunk if it ended a request."""
        silent = self._first_silent()
        times = [time for time in (until_ns, silent[0] if silent else None) if time is not None]
        event = self.clock.wait(self.inbox, min(times, default=None))
        if event is None and silent and self.clock.now_ns() >= silent[0]:
            event = (silent[1], Chunk((), silent[0], finish="timeout", detail="the session never ended it"))
        return self._take(event) if event is not None else None

    def _first_silent(self) -> tuple[int, int] | None:
        """When a session is past all patience with a request, and which one it is."""
        if self.timeout_ns is None or not self.flying:
            return None
        key = min(self.flying)
        return self.flights[key].sent_ns + self.timeout_ns + GRACE_NS, key

    def _take(self, event: Event) -> int | None:
        key, chunk = event
        if key not in self.flying:
            return None
        flight = self.flights[key]
        flight.chunks.append(chunk)
        if chunk.finish is None:
            return None
        self.flying.discard(key)
        if flight.measured:
            self.measured_done += 1
            if self.on_done is not None:
                self.on_done(self.measured_done)
        return chunk.t_ns

    def cancel_all(self, reason: str) -> None:
        """Cancel what is in flight and wait until the session has ended it, ``GRACE_NS`` at most."""
        for key in self.flying:
            flight = self.flights[key]
            flight.reason = reason
            if flight.handle is not None:
                flight.handle.cancel()
        patience = self.clock.now_ns() + GRACE_NS
        while self.flying and self.clock.now_ns() < patience:
            self.step(patience)
        for key in sorted(self.flying):
            detail = f"{reason}; the session never ended it"
            self._take((key, Chunk((), self.clock.now_ns(), finish="cancelled", detail=detail)))

    def timeline(self, stopped: int, *, unsent: int, interrupted: bool) -> Timeline:
        """Everything that was sent; the window is that of the measured requests."""
        measured = [flight for flight in self.flights.values() if flight.measured]
        ends = [flight.chunks[-1].t_ns for flight in measured if flight.chunks[-1].finish != "cancelled"]
        return Timeline(
            requests=tuple(flight.times() for flight in measured),
            start_ns=min((flight.scheduled_ns for flight in measured), default=stopped),
            end_ns=stopped if unsent or not ends else max(ends),
            fillers=tuple(flight.times() for flight in self.flights.values() if not flight.measured),
            unsent=unsent,
            interrupted=interrupted,
        )
