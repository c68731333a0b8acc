"""The draft-verify-accept loop. It knows no library: engines are the two narrow protocols below.

A round: the draft proposes k tokens (k may be 0), the target reads the last token and the k proposals in one pass, the
lossless rule keeps the leading run that the target would have produced itself and adds one token of the target's own.
Both caches then forget what was rejected. Many requests play a round together, each with its own k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from specbuild.clock import now_ns
from specbuild.runtime import acceptance
from specbuild.runtime.acceptance import Logits, Probs, Tokens
from specbuild.runtime.blocks import Cache
from specbuild.runtime.policy import Situation
from specbuild.runtime.session import Chunk, Finish, Generate, Sampling

PASS_TOKENS = 256
"""Prompt tokens read in one pass: bounds how long a long prompt holds up the requests beside it."""


@dataclass(frozen=True)
class Feed:
    """What one sequence puts into a pass."""

    cache: Cache
    tokens: Tokens
    """int64 [n], n >= 1: the tokens that follow what the cache holds."""
    rows: int
    """How many of the last positions need logits; 0 while a long prompt is being read."""


class Model(Protocol):
    """An engine that returns logits: a target, or a draft that is asked token by token (``Stepwise``)."""

    vocab_size: int

    def open(self, capacity: int) -> Cache | None:
        """A cache for up to ``capacity`` tokens; None while there is no room."""

    def close(self, cache: Cache) -> None:
        """Give a cache back."""

    def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
        """One pass; caches grow by their tokens. Per feed float32 [rows, vocab], valid until the next pass.

        Raises RuntimeError where the engine fails; no cache has then changed.
        """


@dataclass(frozen=True)
class Ask:
    """What one sequence asks of the draft."""

    cache: Cache
    tokens: Tokens
    """int64 [n], n >= 1: verified tokens that the draft's cache does not hold yet."""
    draft_len: int
    """>= 1."""
    sampling: Sampling
    rng: np.random.Generator


@dataclass(frozen=True)
class Proposal:
    """Drafted tokens: int64 [k], and the distributions float64 [k, vocab] they were drawn from (None when greedy)."""

    tokens: Tokens
    probs: Probs | None = None


NOTHING = Proposal(np.empty(0, np.int64))


class Draft(Protocol):
    """An engine that proposes tokens."""

    def open(self, capacity: int) -> Cache | None:
        """A cache for up to ``capacity`` tokens; None while there is no room."""

    def close(self, cache: Cache) -> None:
        """Give a cache back."""

    def propose(self, asks: Sequence[Ask]) -> list[Proposal]:
        """Up to ``draft_len`` tokens for each. A cache then holds its ask's tokens and any part of the proposal.

        Raises RuntimeError where the engine fails.
        """


class Stepwise:
    """A draft made of an engine that returns logits: one pass per drafted token, all sequences together.

    ``vocab_size`` is the target's: the two may pad one tokenizer's vocabulary to different sizes.
    """

    def __init__(self, engine: Model, vocab_size: int) -> None:
        self._missing = max(0, vocab_size - engine.vocab_size)
        self._vocab_size = vocab_size
        self.open = engine.open
        self.close = engine.close
        self._engine = engine

    def propose(self, asks: Sequence[Ask]) -> list[Proposal]:
        """Tokens drawn under each request's own sampling."""
        drafting = [_Drafting(ask) for ask in asks]
        feeds = [Feed(ask.cache, self._catch_up(ask), 1) for ask in asks]
        active = drafting
        while active:
            for one, logits in zip(active, self._engine.forward(feeds), strict=True):
                one.take(logits[:, : self._vocab_size], self._missing)
            active = [one for one in active if len(one.tokens) < one.ask.draft_len]
            feeds = [Feed(one.ask.cache, np.array(one.tokens[-1:], np.int64), 1) for one in active]
        return [one.proposal() for one in drafting]

    def _catch_up(self, ask: Ask) -> Tokens:
        """Read all but the last part of a long history; returns that part."""
        tokens = ask.tokens
        while len(tokens) > PASS_TOKENS:
            self._engine.forward([Feed(ask.cache, tokens[:PASS_TOKENS], 0)])
            tokens = tokens[PASS_TOKENS:]
        return tokens


@dataclass
class _Drafting:
    """What one ask has got so far."""

    ask: Ask
    tokens: list[int] = field(default_factory=list)
    probs: list[Probs] = field(default_factory=list)

    def take(self, logits: Logits, missing: int) -> None:
        """Draw from float32 [1, vocab]; ``missing`` tokens more have probability 0."""
        if self.ask.sampling.greedy:
            self.tokens.append(int(logits[0].argmax()))
            return
        (probs,) = acceptance.shape(logits, self.ask.sampling)
        self.tokens.append(acceptance.draw(probs, self.ask.rng))
        self.probs.append(np.pad(probs, (0, missing)))

    def proposal(self) -> Proposal:
        return Proposal(np.array(self.tokens, np.int64), np.stack(self.probs) if self.probs else None)


class Decoding:
    """One request being decoded: what is known of it, and what each round asks of the engines."""

    def __init__(self, request: Generate, target: Cache, draft: Cache | None, eos_ids: frozenset[int]) -> None:
        self.request = request
        self.target = target
        self.draft = draft
        self._eos_ids = frozenset() if request.ignore_eos else eos_ids
        self._rng = np.random.default_rng(request.sampling.seed)
        self._prompt_len = len(request.token_ids)
        self._known = np.empty(self._prompt_len + request.max_tokens, np.int64)
        self._known[: self._prompt_len] = request.token_ids
        self._length = self._prompt_len
        self._proposal = NOTHING

    @property
    def output_len(self) -> int:
        """Verified tokens so far."""
        return self._length - self._prompt_len

    def ask(self, running: int, max_draft_len: int) -> Ask | None:
        """What this round asks of the draft; None for a round without. The policy decides, within the limits.

        The first round only reads the prompt. A round never drafts past ``max_tokens``: one token is the target's own.
        """
        self._proposal = NOTHING
        self._rewind()
        if self.draft is None or not self.output_len:
            return None
        situation = Situation(self._prompt_len, self.output_len, running)
        left = self.request.max_tokens - self.output_len
        draft_len = min(self.request.policy.draft_len(situation), max_draft_len, left - 1)
        if draft_len < 1:
            return None
        pending = self._known[self.draft.length : self._length]
        return Ask(self.draft, pending, draft_len, self.request.sampling, self._rng)

    def propose(self, proposal: Proposal) -> None:
        """Take the draft's answer to ``ask``."""
        self._proposal = proposal

    def feed(self, room: int) -> Feed | None:
        """What the target reads next: the last token and the proposal, or up to ``room`` tokens of the prompt.

        None where the prompt finds no room in this pass.
        """
        pending = self._known[self.target.length : self._length]
        if len(pending) > 1:
            part = pending[:room]
            return Feed(self.target, part, int(len(part) == len(pending))) if len(part) else None
        drafted = self._proposal.tokens
        return Feed(self.target, np.concatenate([pending, drafted]), 1 + len(drafted))

    def take(self, logits: Logits) -> Chunk | None:
        """Keep what the rule accepts of the round and forget the rest; None while the prompt is being read."""
        if not len(logits):
            return None
        verdict = self._judge(logits)
        drafted = self._proposal.tokens
        tokens = [*drafted[: verdict.accepted].tolist(), verdict.token]
        end = next((index for index, token in enumerate(tokens) if token in self._eos_ids), None)
        if end is not None:
            tokens = tokens[: end + 1]
        self._known[self._length : self._length + len(tokens)] = tokens
        self._length += len(tokens)
        self._rewind()
        return Chunk(tuple(tokens), now_ns(), len(drafted), len(tokens) - 1, self._finish(end is not None))

    def _judge(self, logits: Logits) -> acceptance.Verdict:
        sampling, proposal = self.request.sampling, self._proposal
        if sampling.greedy:
            return acceptance.greedy(proposal.tokens, logits)
        probs = acceptance.shape(logits, sampling)
        draft_probs = probs[:0] if proposal.probs is None else proposal.probs
        return acceptance.sampled(proposal.tokens, draft_probs, probs, self._rng)

    def _rewind(self) -> None:
        """Trim both caches to what stands: all but the last verified token, which the next round reads."""
        for cache in (self.target, self.draft):
            if cache is not None and cache.length >= self._length:
                cache.trim(self._length - 1)

    def _finish(self, ended: bool) -> Finish | None:
        if ended:
            return "stop"
        return "length" if self.output_len >= self.request.max_tokens else None


def play_round(
    decodings: Sequence[Decoding], target: Model, draft: Draft | None, max_draft_len: int
) -> list[Chunk | None]:
    """One round of every decoding, together; per decoding its chunk, or None while its prompt is being read.

    Raises RuntimeError where an engine fails; every decoding can then play the round again.
    """
    asking = [
        (decoding, ask) for decoding in decodings if (ask := decoding.ask(len(decodings), max_draft_len)) is not None
    ]
    if draft is not None and asking:
        for (decoding, _), proposal in zip(asking, draft.propose([ask for _, ask in asking]), strict=True):
            decoding.propose(proposal)
    room = PASS_TOKENS
    feeds: dict[int, Feed] = {}
    for index, decoding in enumerate(decodings):
        feed = decoding.feed(room)
        if feed is not None:
            feeds[index] = feed
            room -= len(feed.tokens) if not decoding.output_len else 0
    logits = dict(zip(feeds, target.forward(list(feeds.values())), strict=True))
    return [decoding.take(logits[index]) if index in logits else None for index, decoding in enumerate(decodings)]
