"""The thread of a session: requests come in from anywhere, rounds are played on one thread, chunks go out."""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from specbuild.clock import now_ns
from specbuild.errors import ServerError
from specbuild.runtime.session import Chunk, Finish, Generate, OnChunk

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Ticket:
    """A request in flight, and the way its chunks take."""

    request: Generate
    on_chunk: OnChunk = field(repr=False)
    wake: threading.Event = field(repr=False)
    submitted_ns: int = field(default_factory=now_ns)
    finished: bool = False
    cancelled: bool = False

    def cancel(self) -> None:
        """End it at the next round."""
        self.cancelled = True
        self.wake.set()

    def deliver(self, chunk: Chunk) -> None:
        """Hand a chunk to the caller; nothing follows a chunk with ``finish``."""
        if self.finished:
            return
        self.finished = chunk.finish is not None
        try:
            self.on_chunk(chunk)
        except Exception:  # the caller's code: whatever it raises must not stop the other requests
            log.exception("the callback of request %s raised; the request is cancelled", self.request.id)
            self.cancelled = True

    def end(self, finish: Finish, detail: str = "") -> None:
        """Deliver a last chunk without tokens."""
        self.deliver(Chunk((), now_ns(), finish=finish, detail=detail))

    def overdue(self) -> bool:
        """Whether its time-out has passed."""
        timeout = self.request.timeout_ns
        return timeout is not None and now_ns() - self.submitted_ns >= timeout


class Rounds(Protocol):
    """What a session adds to the worker: admission and rounds. Called on the worker's thread only."""

    def refusal(self, request: Generate) -> str | None:
        """Why the request can never run; None if it can."""

    def admit(self, ticket: Ticket) -> bool:
        """Start it; False while there is no room (never when nothing else runs)."""

    def step(self) -> list[tuple[Ticket, Chunk]]:
        """One round of all that run; the chunks it gave."""

    def drop(self, ticket: Ticket) -> None:
        """Free what an admitted request holds."""

    def close(self) -> None:
        """Free the engines."""


class Worker:
    """One thread that plays the rounds of a session, first come first served."""

    def __init__(self, rounds: Rounds, name: str) -> None:
        self._rounds = rounds
        self._inbox: list[Ticket] = []
        self._waiting: deque[Ticket] = deque()
        self._running: list[Ticket] = []
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, request: Generate, on_chunk: OnChunk) -> Ticket:
        """Queue a request. Raises ServerError after ``close``."""
        ticket = Ticket(request, on_chunk, self._wake)
        with self._lock:
            if self._closed:
                raise ServerError("the session is closed")
            self._inbox.append(ticket)
        self._wake.set()
        return ticket

    def close(self) -> None:
        """Cancel what is in flight, then stop the thread."""
        self._closed = True
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closed:
                self._wake.clear()
                self._collect()
                self._end_cancelled_and_overdue()
                self._admit()
                if self._running:
                    self._play()
                else:
                    self._wake.wait()
        finally:  # after close, and after a bug (the traceback then goes to threading.excepthook)
            self._shut("cancelled" if self._closed else "error")

    def _collect(self) -> None:
        with self._lock:
            self._waiting.extend(self._inbox)
            self._inbox.clear()

    def _play(self) -> None:
        for ticket, chunk in self._rounds.step():
            if chunk.finish is not None:
                self._drop(ticket)
            ticket.deliver(chunk)

    def _end_cancelled_and_overdue(self) -> None:
        for ticket in [*self._running, *self._waiting]:
            if ticket.cancelled or ticket.overdue():
                self._drop(ticket)
                ticket.end("cancelled" if ticket.cancelled else "timeout")

    def _admit(self) -> None:
        while self._waiting:
            ticket = self._waiting[0]
            refusal = self._rounds.refusal(ticket.request)
            if refusal is not None:
                self._waiting.popleft()
                ticket.end("error", refusal)
            elif self._rounds.admit(ticket):
                self._running.append(self._waiting.popleft())
            else:
                return

    def _drop(self, ticket: Ticket) -> None:
        if ticket in self._running:
            self._running.remove(ticket)
            self._rounds.drop(ticket)
        else:
            self._waiting.remove(ticket)

    def _shut(self, finish: Finish) -> None:
        with self._lock:
            self._closed = True
        self._collect()
        for ticket in [*self._running, *self._waiting]:
            ticket.end(finish, "the session's worker failed" if finish == "error" else "")
        self._rounds.close()
        del self._rounds  # and the engines with it
