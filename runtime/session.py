"""The one protocol behind which a pair runs: requests of token ids in, verified tokens out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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
