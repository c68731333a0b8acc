"""A session in virtual time: a batch of requests decoded in rounds whose length is a formula. Nothing sleeps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np

from specbuild.runtime.policy import Situation
from specbuild.runtime.prepare import Prepared
from specbuild.runtime.session import Chunk, Generate, OnChunk, Sampling
from specbuild.units import NS_PER_MS

EOS = 1


def prepared(name: str, prompt_len: int = 8, max_tokens: int = 16, **more) -> Prepared:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    tokens = np.random.default_rng(seed).integers(2, 1000, prompt_len)
    return Prepared(
        name, tuple(tokens.tolist()), max_tokens, more.pop("sampling", Sampling()), more.pop("arrival_ns", 0), **more
    )


def answer(token_ids: Sequence[int], max_tokens: int) -> np.ndarray:
    """What the virtual target says to a prompt: the same whatever the policy."""
    return np.random.default_rng(list(token_ids)).integers(2, 1000, max_tokens)


def agreement(token_ids: Sequence[int], max_tokens: int, rate: float) -> np.ndarray:
    """Which tokens of the answer the virtual draft would have said."""
    return np.random.default_rng([7, *token_ids]).random(max_tokens) < rate


class VirtualClock:
    def __init__(self) -> None:
        self.now = 1_000_000
        self.sessions: list[VirtualSession] = []
        self.interrupt_at: int | None = None

    def now_ns(self) -> int:
        return self.now

    def wait(self, inbox: SimpleQueue, until_ns: int | None):
        while inbox.empty():
            times = [time for session in self.sessions if (time := session.next_ns()) is not None]
            upcoming = min(times, default=None)
            if self.interrupt_at is not None and (upcoming is None or upcoming >= self.interrupt_at):
                self.interrupt_at = None
                raise KeyboardInterrupt
            if upcoming is None or (until_ns is not None and upcoming > until_ns):
                assert until_ns is not None, "nothing will ever happen"
                self.now = max(self.now, until_ns)
                return None
            self.now = max(self.now, upcoming)
            for session in self.sessions:
                if session.next_ns() == upcoming:
                    session.fire()
        return inbox.get()


@dataclass
class _Active:
    request: Generate
    on_chunk: OnChunk
    submitted: int
    tokens: np.ndarray
    agree: np.ndarray
    out: int = 0
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class VirtualSession:
    """Rounds of all that run together; ``round_ms(running, draft_len)`` says how long each takes."""

    clock: VirtualClock
    round_ms: Callable[[int, int], float]
    rate: float = 0.7
    prefill_ms: float = 5.0
    max_batch_size: int = 64
    graph: str = "orchestrated"
    answer: Callable[[Sequence[int], int], np.ndarray] = answer
    draft_cap: int = 64
    queue: list[_Active] = field(default_factory=list)
    running: list[_Active] = field(default_factory=list)
    round_ends: int | None = None
    closed: bool = False
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock.sessions.append(self)

    def submit(self, request: Generate, on_chunk: OnChunk) -> _Active:
        active = _Active(
            request,
            on_chunk,
            self.clock.now,
            self.answer(request.token_ids, request.max_tokens),
            agreement(request.token_ids, request.max_tokens, self.rate),
        )
        self.seen.append(request.id)
        self.queue.append(active)
        return active

    def close(self) -> None:
        self.closed = True
        self.clock.sessions.remove(self)

    def next_ns(self) -> int | None:
        if self.round_ends is None and (self.queue or self.running):
            self._begin()
        return self.round_ends

    def _begin(self) -> None:
        fresh = self.queue[: self.max_batch_size - len(self.running)]
        del self.queue[: len(fresh)]
        self.running += fresh
        longest = max(self._draft_len(active) for active in self.running)
        took = self.round_ms(len(self.running), longest) + self.prefill_ms * len(fresh)
        self.round_ends = self.clock.now + round(took * NS_PER_MS)

    def _draft_len(self, active: _Active) -> int:
        if not active.out or active.request.sampling.temperature > 0:
            return 0
        situation = Situation(len(active.request.token_ids), active.out, len(self.running))
        left = active.request.max_tokens - active.out - 1
        return max(min(active.request.policy.draft_len(situation), self.draft_cap, left), 0)

    def fire(self) -> None:
        self.round_ends = None
        for active in list(self.running):
            chunk = self._round(active)
            if chunk.finish:
                self.running.remove(active)
            active.on_chunk(chunk)

    def _round(self, active: _Active) -> Chunk:
        now = self.clock.now
        if active.cancelled:
            return Chunk((), now, finish="cancelled")
        timeout = active.request.timeout_ns
        if timeout is not None and now - active.submitted >= timeout:
            return Chunk((), now, finish="timeout", detail="too slow")
        drafted = self._draft_len(active)
        run = 0
        while run < drafted and active.agree[active.out + run]:
            run += 1
        tokens = active.tokens[active.out : active.out + run + 1]
        ends = np.flatnonzero(tokens == EOS) if not active.request.ignore_eos else np.empty(0)
        if len(ends):
            tokens = tokens[: int(ends[0]) + 1]
        active.out += len(tokens)
        finish = "stop" if len(ends) else "length" if active.out >= active.request.max_tokens else None
        return Chunk(tuple(tokens.tolist()), now, drafted, len(tokens) - 1, finish)


class Wrong(VirtualSession):
    """Says another token than the target whenever it drafted, in one request of three."""

    def _round(self, active):
        chunk = super()._round(active)
        if chunk.accepted and len(active.request.token_ids) % 3 == 0:
            return Chunk((*chunk.token_ids[:-1], 999), chunk.t_ns, chunk.drafted, chunk.accepted, chunk.finish)
        return chunk
