"""Our own loop over two engines: drafts of any length in any round, greedy and sampled, many requests a pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specbuild.clock import now_ns
from specbuild.runtime.session import Chunk, Generate, Limits, OnChunk
from specbuild.runtime.speculate import Decoding, Draft, Model, Stepwise, play_round
from specbuild.runtime.worker import Ticket, Worker

if TYPE_CHECKING:
    from specbuild.runtime.open import SessionSpec


class OrchestratedSession:
    """A session whose rounds are ``speculate.play_round``. ``draft`` None: the target alone."""

    graph = "orchestrated"

    def __init__(
        self, target: Model, draft: Draft | None, limits: Limits, max_draft_len: int, eos_ids: Sequence[int] = ()
    ) -> None:
        self._worker = Worker(_Rounds(target, draft, limits, max_draft_len, frozenset(eos_ids)), "orchestrated")

    @classmethod
    def open(cls, spec: SessionSpec) -> OrchestratedSession:
        """Load the engines of a spec.

        Raises ToolchainError where a folder holds no engine.
        """
        from specbuild.runtime.openvino import BLOCK_TOKENS, CacheLimits, OpenVinoEngine
        from specbuild.units import GIB

        sequence = -(-spec.max_seq_len // BLOCK_TOKENS) * BLOCK_TOKENS
        cache = CacheLimits(spec.max_batch_size * sequence, spec.kv_cache_gib * GIB)
        target = OpenVinoEngine(spec.target, numerics=spec.numerics, cache=cache)
        draft = None
        engines = [target]
        if spec.drafter is not None:
            engines.append(OpenVinoEngine(spec.drafter, numerics=spec.numerics, cache=cache))
            draft = Stepwise(engines[-1], target.vocab_size)
        longest = min(spec.max_seq_len, *(min(engine.pool.tokens, engine.max_position) for engine in engines))
        limits = Limits(spec.max_batch_size, longest, min(engine.vocab_size for engine in engines))
        return cls(target, draft, limits, spec.max_draft_len, spec.eos_ids)

    def submit(self, request: Generate, on_chunk: OnChunk) -> Ticket:
        """Queue a request.

        Raises ServerError after ``close``.
        """
        return self._worker.submit(request, on_chunk)

    def close(self) -> None:
        """Cancel what is in flight and free the engines."""
        self._worker.close()


class _Rounds:
    def __init__(
        self, target: Model, draft: Draft | None, limits: Limits, max_draft_len: int, eos_ids: frozenset[int]
    ) -> None:
        self._target = target
        self._draft = draft
        self._limits = limits
        self._max_draft_len = max_draft_len
        self._eos_ids = eos_ids
        self._decodings: dict[Ticket, Decoding] = {}

    def refusal(self, request: Generate) -> str | None:
        return self._limits.refusal(request)

    def admit(self, ticket: Ticket) -> bool:
        if len(self._decodings) >= self._limits.max_batch_size:
            return False
        request = self._limits.fitted(ticket.request)
        capacity = len(request.token_ids) + request.max_tokens
        target = self._target.open(capacity)
        if target is None:
            return False
        draft = None
        if self._draft is not None:
            draft = self._draft.open(capacity)
            if draft is None:
                self._target.close(target)
                return False
        self._decodings[ticket] = Decoding(request, target, draft, self._eos_ids)
        return True

    def step(self) -> list[tuple[Ticket, Chunk]]:
        tickets = list(self._decodings)
        try:
            chunks = self._play(tickets)
        except RuntimeError:  # one request may have broken the pass: play each alone to find which
            chunks = [chunk for ticket in tickets for chunk in self._play_alone(ticket)]
        return [(ticket, chunk) for ticket, chunk in zip(tickets, chunks, strict=True) if chunk is not None]

    def _play(self, tickets: Sequence[Ticket]) -> list[Chunk | None]:
        decodings = [self._decodings[ticket] for ticket in tickets]
        return play_round(decodings, self._target, self._draft, self._max_draft_len)

    def _play_alone(self, ticket: Ticket) -> list[Chunk | None]:
        try:
            return self._play([ticket])
        except RuntimeError as error:
            return [Chunk((), now_ns(), finish="error", detail=str(error))]

    def drop(self, ticket: Ticket) -> None:
        decoding = self._decodings.pop(ticket)
        self._target.close(decoding.target)
        if self._draft is not None and decoding.draft is not None:
            self._draft.close(decoding.draft)

    def close(self) -> None:
        self._decodings.clear()
