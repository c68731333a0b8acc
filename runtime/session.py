"""The one protocol behind which a pair runs: requests of token ids in, verified tokens out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from specbuild.runtime.policy import Policy

Finish = Literal["stop", "length", "cancelled", "timeout", "error"]


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn; temperature 0 is greedy, top_k 0 no limit."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None

    @property
    def greedy(self) -> bool:
        """The most probable token is taken."""
        return self.temperature == 0.0


@dataclass(frozen=True)
class Generate:
    """One request to a session."""

    id: str
    token_ids: tuple[int, ...] = field(repr=False)
    max_tokens: int
    policy: Policy
    sampling: Sampling = Sampling()
    timeout_ns: int | None = None
    """Wall time after which the session ends it, from submission."""
    ignore_eos: bool = False


@dataclass(frozen=True)
class Chunk:
    """The verified tokens of one round, as they left the engine."""

    token_ids: tuple[int, ...]
    t_ns: int
    """When the tokens were there (the one clock)."""
    drafted: int = 0
    """Tokens proposed in the round; 0 for a round without draft."""
    accepted: int = 0
    finish: Finish | None = None
    """Set on the last chunk."""
    detail: str = ""
    """The reason of ``error``."""


@dataclass(frozen=True)
class Limits:
    """What a session can hold."""

    max_batch_size: int
    """Requests decoded at once; the rest queue."""
    max_seq_len: int
    """Prompt and output tokens of one request."""
    vocab_size: int

    def refusal(self, request: Generate) -> str | None:
        """Why a request can never run; None if it can."""
        prompt = request.token_ids
        if not prompt:
            return "the prompt is empty"
        if len(prompt) >= self.max_seq_len:
            return f"the prompt has {len(prompt)} tokens; max_seq_len {self.max_seq_len} leaves no room for an answer"
        if min(prompt) < 0 or max(prompt) >= self.vocab_size:
            return f"a token id is outside the vocabulary of {self.vocab_size}"
        if request.max_tokens < 1:
            return f"max_tokens is {request.max_tokens}"
        return None

    def fitted(self, request: Generate) -> Generate:
        """The request with ``max_tokens`` cut to what ``max_seq_len`` leaves."""
        room = self.max_seq_len - len(request.token_ids)
        return request if request.max_tokens <= room else replace(request, max_tokens=room)


OnChunk = Callable[[Chunk], None]
"""Called on the session's worker thread; must not block."""


class Handle(Protocol):
    """A request in flight."""

    def cancel(self) -> None:
        """Ask the session to end it; a chunk with finish ``cancelled`` follows."""


class Session(Protocol):
    """A running pair."""

    graph: str
    """``fused`` or ``orchestrated``."""

    def submit(self, request: Generate, on_chunk: OnChunk) -> Handle:
        """Queue a request; every request gets exactly one chunk with ``finish`` set, as its last.

        Raises ServerError after ``close``.
        """

    def close(self) -> None:
        """Cancel what is in flight and free the engines."""
