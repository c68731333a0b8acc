"""OpenVINO GenAI speculates: its continuous batching pipeline with a draft model, draft length per request.

Two pipelines serve a session without loss. The one with the draft takes greedy requests that draft; its sampled
speculation does not keep the target's distribution, and it has no draft length 0. Everything else goes to a pipeline of
the target alone, which is a second copy of the target. A policy is asked once, when a request is admitted.

Two things make GenAI 2026.4 answer wrongly while it speculates, and are kept from happening here: a prompt that is read
in parts beside other requests, and a request that is put back for want of KV blocks.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specbuild.clock import now_ns
from specbuild.errors import ToolchainError
from specbuild.runtime.blocks import BlockPool, Cache
from specbuild.runtime.modelconfig import ModelConfig
from specbuild.runtime.numerics import plugin_properties
from specbuild.runtime.policy import Situation
from specbuild.runtime.session import Chunk, Finish, Generate, Limits, OnChunk
from specbuild.runtime.worker import Ticket, Worker
from specbuild.units import GIB

if TYPE_CHECKING:
    from pathlib import Path

    from specbuild.runtime.open import SessionSpec

PASS_TOKENS = 256
"""Tokens in one pass of the target alone; longer prompts are read in parts. GenAI's default."""
BLOCK_TOKENS = 32
"""Tokens of a KV block on the CPU."""


class FusedSession:
    """A session whose rounds are steps of OpenVINO GenAI pipelines.

    Raises ToolchainError where a folder holds no usable engine.
    """

    graph = "fused"

    def __init__(self, spec: SessionSpec) -> None:
        self._worker = Worker(_Rounds(spec), "fused")

    def submit(self, request: Generate, on_chunk: OnChunk) -> Ticket:
        """Queue a request.

        Raises ServerError after ``close``.
        """
        return self._worker.submit(request, on_chunk)

    def close(self) -> None:
        """Cancel what is in flight and free the engines."""
        self._worker.close()


@dataclass
class _Flight:
    """A request inside a pipeline."""

    request: Generate
    handle: Any
    draft_len: int
    reserved: Cache
    output_len: int = 0
    finished: bool = False

    def read(self) -> Chunk | None:
        """The tokens that the last step verified; None if there are none."""
        from openvino_genai.py_openvino_genai import GenerationFinishReason, GenerationStatus

        finish: Finish | None = None
        tokens: list[int] = []
        while self.handle.can_read():
            for output in self.handle.read().values():
                tokens.extend(output.generated_ids)
                if output.finish_reason != GenerationFinishReason.NONE:
                    finish = "stop" if output.finish_reason == GenerationFinishReason.STOP else "length"
        if self.handle.get_status() == GenerationStatus.IGNORED:
            return self.fail("the KV cache cannot hold the request")
        self.finished = finish is not None
        return self._chunk(tokens, finish) if tokens or finish else None

    def fail(self, detail: str) -> Chunk:
        """The last chunk of a request that GenAI cannot finish."""
        self.finished = True
        return Chunk((), now_ns(), finish="error", detail=detail)

    def _chunk(self, tokens: list[int], finish: Finish | None) -> Chunk:
        """The first round only reads the prompt; no round drafts past max_tokens (both as GenAI does)."""
        left = self.request.max_tokens - self.output_len
        drafted = min(self.draft_len, left - 1) if self.output_len else 0
        self.output_len += len(tokens)
        return Chunk(tuple(tokens), now_ns(), drafted, len(tokens) - 1, finish)


class _Pipeline:
    """One GenAI pipeline, loaded when first needed and again after it broke."""

    def __init__(self, spec: SessionSpec, draft: Path | None) -> None:
        self._spec = spec
        self._draft = draft
        self._slack = 0 if draft is None else spec.max_draft_len + 1
        self._pool = _pool(spec, draft, self._slack)
        self._inner: Any = None
        self._flights: dict[Ticket, _Flight] = {}
        self._leaving: list[Cache] = []
        self._next_id = 0

    @property
    def longest(self) -> int:
        """Tokens of the longest request that its KV cache holds."""
        return self._pool.tokens - self._slack

    def load(self) -> Any:
        if self._inner is None:
            self._inner = load_pipeline(self._spec, self._draft, self._pool.blocks)
        return self._inner

    def add(self, ticket: Ticket, request: Generate, draft_len: int) -> bool:
        """False while it has no room for all that the request may need: GenAI is never to put one back."""
        import numpy as np
        from openvino import Tensor

        if self._leaving and not self._flights:
            self.step()
        reserved = self._pool.open(len(request.token_ids) + request.max_tokens + self._slack)
        if reserved is None:
            return False
        config = generation_config(request, draft_len, self._spec.eos_ids)
        self._next_id += 1
        handle = self.load().add_request(self._next_id, Tensor(np.array([request.token_ids], np.int64)), config)
        self._flights[ticket] = _Flight(request, handle, draft_len, reserved)
        return True

    def drop(self, ticket: Ticket) -> bool:
        """Whether the request was here; what a cancelled one holds comes back with the next step."""
        flight = self._flights.pop(ticket, None)
        if flight is None:
            return False
        if flight.finished:
            self._pool.close(flight.reserved)
        else:
            flight.handle.cancel()
            self._leaving.append(flight.reserved)
        return True

    def step(self) -> list[tuple[Ticket, Chunk]]:
        """One step for all its requests. A step that fails ends them all: the pipeline is unusable from then on."""
        if not self._flights and not self._leaving:
            return []
        try:
            self._inner.step()
            chunks = [(ticket, flight.read()) for ticket, flight in self._flights.items()]
        except RuntimeError as error:
            self._inner = None
            chunks = [(ticket, flight.fail(str(error))) for ticket, flight in self._flights.items()]
        for reserved in self._leaving:
            self._pool.close(reserved)
        self._leaving.clear()
        return [(ticket, chunk) for ticket, chunk in chunks if chunk is not None]

    def close(self) -> None:
        for ticket in list(self._flights):
            self.drop(ticket)
        self.step()
        self._inner = None


@dataclass
class _Rounds:
    spec: SessionSpec
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        spec = self.spec
        self._alone = _Pipeline(spec, None)
        self._speculative = _Pipeline(spec, spec.drafter)
        self._running = 0
        configs = [ModelConfig.read(folder) for folder in (spec.target, spec.drafter) if folder is not None]
        longest = min(config.max_position for config in configs)
        longest = min(longest, spec.max_seq_len, self._alone.longest, self._speculative.longest)
        self.limits = Limits(spec.max_batch_size, longest, min(config.vocab_size for config in configs))
        if spec.drafter is not None:
            self._speculative.load()
        if spec.drafter is None or spec.preload_alone:
            self._alone.load()

    def refusal(self, request: Generate) -> str | None:
        return self.limits.refusal(request)

    def admit(self, ticket: Ticket) -> bool:
        if self._running >= self.limits.max_batch_size:
            return False
        request = self.limits.fitted(ticket.request)
        draft_len = self._draft_len(request)
        pipeline = self._speculative if draft_len else self._alone
        admitted = pipeline.add(ticket, request, draft_len)
        self._running += admitted
        return admitted

    def _draft_len(self, request: Generate) -> int:
        if self.spec.drafter is None or not request.sampling.greedy:
            return 0
        situation = Situation(len(request.token_ids), 0, self._running + 1)
        return min(request.policy.draft_len(situation), self.spec.max_draft_len)

    def step(self) -> list[tuple[Ticket, Chunk]]:
        return self._speculative.step() + self._alone.step()

    def drop(self, ticket: Ticket) -> None:
        self._running -= 1
        if not self._speculative.drop(ticket):
            self._alone.drop(ticket)

    def close(self) -> None:
        self._speculative.close()
        self._alone.close()


def _pool(spec: SessionSpec, draft: Path | None, slack: int) -> BlockPool:
    """The KV blocks of each model of a pipeline: what the limits can need, within ``kv_cache_gib``."""
    value_bytes = 4 if spec.numerics == "exact" else 2  # fast may be 1: the plugin decides
    values = max(ModelConfig.read(folder).kv_values for folder in (spec.target, draft) if folder is not None)
    affordable = spec.kv_cache_gib * GIB // (values * value_bytes * BLOCK_TOKENS)
    needed = spec.max_batch_size * -(-(spec.max_seq_len + slack) // BLOCK_TOKENS)
    return BlockPool(max(1, min(needed, affordable)), BLOCK_TOKENS)


def load_pipeline(spec: SessionSpec, draft: Path | None, blocks: int) -> Any:
    """A GenAI pipeline, with ``draft`` or of the target alone, whose models each have so many KV blocks.

    Raises ToolchainError where GenAI cannot load it.
    """
    import openvino_genai

    properties = plugin_properties(spec.numerics)
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = blocks  # of each model
    scheduler.max_num_batched_tokens = PASS_TOKENS if draft is None else blocks * BLOCK_TOKENS
    scheduler.enable_prefix_caching = False  # what was tuned is what is served
    try:
        models = {} if draft is None else {"draft_model": openvino_genai.draft_model(draft, "CPU", **properties)}
        return openvino_genai.ContinuousBatchingPipeline(spec.target, scheduler, "CPU", {**properties, **models})
    except RuntimeError as error:
        raise ToolchainError(f"OpenVINO GenAI cannot load it: {error}", where=str(spec.target)) from error


def generation_config(request: Generate, draft_len: int, eos_ids: tuple[int, ...]) -> Any:
    """GenAI's words for a request; draft_len 0 for a pipeline of the target alone."""
    import openvino_genai

    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = request.max_tokens
    config.stop_token_ids = set(eos_ids)
    config.ignore_eos = request.ignore_eos or not eos_ids
    if draft_len:
        config.num_assistant_tokens = draft_len
    sampling = request.sampling
    if not sampling.greedy:
        config.do_sample = True
        config.temperature = sampling.temperature
        config.top_p = sampling.top_p
        config.top_k = sampling.top_k or config.top_k
        config.rng_seed = secrets.randbits(32) if sampling.seed is None else sampling.seed
    return config
