"""From a trace to token ids: done before any clock runs, so that no replay waits for a tokenizer."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from specbuild.errors import ProfileError
from specbuild.profile import Limits
from specbuild.runtime.session import Sampling
from specbuild.runtime.tokenizer import Encoder
from specbuild.trace import Request
from specbuild.units import NS_PER_S


@dataclass(frozen=True)
class Prepared:
    """A request of the trace, ready to be sent."""

    id: str
    token_ids: tuple[int, ...] = field(repr=False)
    max_tokens: int
    sampling: Sampling
    arrival_ns: int
    """After the trace's start."""

    def again(self, turn: int) -> Prepared:
        """The same request under another id, for a session that already holds it."""
        return replace(self, id=f"{self.id}#{turn}")


@dataclass(frozen=True)
class Preparation:
    """The requests that can be replayed, and what became of the others."""

    requests: tuple[Prepared, ...]
    left_out: dict[str, int]
    """Reason → requests."""
    clipped: int
    """Requests whose output limit was cut to ``limits.max_seq_len``."""


def prepare(requests: Iterable[Request], tokenizer: Encoder, limits: Limits) -> Preparation:
    """Tokenize; a chat goes through the engine's template, later turns as they were recorded.

    A prompt that the engines cannot hold is left out and counted. A sampled request without a seed gets one of its id.
    Raises ProfileError where nothing is left.
    """
    ready: list[Prepared] = []
    left_out: Counter[str] = Counter()
    clipped = 0
    for request in requests:
        tokens = _tokens(request, tokenizer)
        reason = _misfit(tokens, limits)
        if tokens is None or reason:
            left_out[reason or "chat messages, and the model has no chat template"] += 1
            continue
        room = limits.max_seq_len - len(tokens)
        clipped += request.max_tokens > room
        ready.append(_prepared(request, tokens, min(request.max_tokens, room)))
    if not ready:
        reasons = "; ".join(f"{count}: {reason}" for reason, count in left_out.items()) or "it is empty"
        raise ProfileError(f"no request of the trace can be replayed ({reasons})")
    return Preparation(tuple(ready), dict(left_out), clipped)


def _tokens(request: Request, tokenizer: Encoder) -> tuple[int, ...] | None:
    if request.token_ids is not None:
        return request.token_ids
    if request.messages is None:
        return tuple(tokenizer.encode(request.prompt or ""))
    if not tokenizer.has_chat_template:
        return None
    text = tokenizer.apply_chat_template([{"role": m.role, "content": m.content} for m in request.messages])
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def _misfit(tokens: tuple[int, ...] | None, limits: Limits) -> str | None:
    if tokens is None:
        return None
    if not tokens:
        return "no token in the prompt"
    if len(tokens) > min(limits.max_input_len, limits.max_seq_len - 1):
        return f"prompt longer than limits.max_input_len ({limits.max_input_len} tokens)"
    return None


def _prepared(request: Request, tokens: tuple[int, ...], max_tokens: int) -> Prepared:
    seed = request.seed
    if seed is None and request.temperature > 0:
        seed = int.from_bytes(hashlib.sha256(request.id.encode()).digest()[:4], "big")
    sampling = Sampling(request.temperature, request.top_p, request.top_k, seed)
    return Prepared(request.id, tokens, max_tokens, sampling, round(request.arrival_s * NS_PER_S))
