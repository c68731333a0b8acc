"""An engine on OpenVINO: a compiled causal language model over a paged KV cache, many sequences in one pass.

The exported model is rewritten so that its attention reads keys and values through block tables (the transformation
that OpenVINO GenAI applies too). Sequences then share one pass whatever their lengths, and rejected tokens are
forgotten by setting a length: nothing is copied and nothing is masked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from specbuild.errors import ToolchainError
from specbuild.runtime.acceptance import Logits, Tokens
from specbuild.runtime.blocks import BlockPool, Cache
from specbuild.runtime.modelconfig import ModelConfig
from specbuild.runtime.numerics import plugin_properties
from specbuild.runtime.speculate import Feed
from specbuild.units import GIB

BLOCK_TOKENS = 32
"""Tokens of one KV block; the CPU plugin's own."""
SCORE_CHUNK = 256
"""Tokens scored in one pass: bounds the logits in memory (256 x vocabulary x 4 bytes)."""


@dataclass(frozen=True)
class CacheLimits:
    """What the KV cache must hold; the pool is the smaller of the two."""

    tokens: int
    """Over all sequences."""
    bytes: int = GIB


class OpenVinoEngine:
    """A compiled model. One thread at a time may call it.

    Raises ToolchainError where the folder holds no usable engine.
    """

    def __init__(self, folder: Path, *, numerics: Literal["exact", "fast"], cache: CacheLimits) -> None:
        core, model = _read(folder)
        self._picks_rows = _pick_logit_rows(model)
        compiled = core.compile_model(model, "CPU", plugin_properties(numerics))
        self._request: Any = compiled.create_infer_request()
        self.vocab_size = int(compiled.output(0).partial_shape[-1].get_length())
        self.max_position = ModelConfig.read(folder).max_position
        self.pool = BlockPool(_attach_cache(compiled, self._request, cache), BLOCK_TOKENS)

    def open(self, capacity: int) -> Cache | None:
        """A cache for up to ``capacity`` tokens; None while the pool has no room."""
        return self.pool.open(capacity)

    def close(self, cache: Cache) -> None:
        """Give a cache back."""
        self.pool.close(cache)

    def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
        """One pass over all feeds; each cache grows by its feed's tokens.

        Returns per feed float32 [feed.rows, vocab]: the logits of its last ``rows`` tokens. They are views into the
        engine's output, valid until the next pass.
        """
        lengths = np.array([len(feed.tokens) for feed in feeds], np.int32)
        past = np.array([feed.cache.length for feed in feeds], np.int32)
        for feed, total in zip(feeds, past + lengths, strict=True):
            if total > feed.cache.capacity:
                raise ValueError(f"{total} tokens do not fit a cache of {feed.cache.capacity}")
        ends = np.cumsum(lengths, dtype=np.int32)
        rows = np.concatenate(
            [np.arange(end - feed.rows, end, dtype=np.int64) for feed, end in zip(feeds, ends, strict=True)]
        )
        self._bind(feeds, past, lengths, ends)
        if self._picks_rows:
            self._set("logit_rows", rows)
        self._request.start_async()  # twice as fast as infer() when other programs want the cores, too
        self._request.wait()
        for feed, length in zip(feeds, lengths, strict=True):
            feed.cache.length += int(length)
        logits: Logits = self._request.get_output_tensor(0).data[:, 0]
        if not self._picks_rows:
            logits = logits[rows]
        return np.split(logits, np.cumsum([feed.rows for feed in feeds])[:-1])

    def score(self, tokens: Tokens, start: int = 0) -> Iterator[Logits]:
        """The logits of positions ``start``.. of a known sequence, in order, as float32 [<= SCORE_CHUNK, vocab] chunks.

        Row i of the whole are the logits after token ``start + i``, those that predict token ``start + i + 1``.
        Raises ValueError where the sequence does not fit the cache.
        """
        cache = self.open(len(tokens))
        if cache is None:
            raise ValueError(f"{len(tokens)} tokens do not fit a cache of {self.pool.tokens}")
        try:
            for first in range(0, len(tokens), SCORE_CHUNK):
                part = tokens[first : first + SCORE_CHUNK]
                rows = min(max(first + len(part) - start, 0), len(part))
                (logits,) = self.forward([Feed(cache, part, rows)])
                if rows:
                    yield logits.copy()
        finally:
            self.close(cache)

    def _bind(
        self,
        feeds: Sequence[Feed],
        past: npt.NDArray[np.int32],
        lengths: npt.NDArray[np.int32],
        ends: npt.NDArray[np.int32],
    ) -> None:
        totals = past + lengths
        tables = [
            feed.cache.blocks[: -(-int(total) // BLOCK_TOKENS)] for feed, total in zip(feeds, totals, strict=True)
        ]
        positions = [np.arange(p, t, dtype=np.int64) for p, t in zip(past, totals, strict=True)]
        self._set("input_ids", np.concatenate([feed.tokens for feed in feeds]).astype(np.int64, copy=False))
        self._set("position_ids", np.concatenate(positions))
        self._set("past_lens", past)
        self._set("subsequence_begins", np.concatenate([np.zeros(1, np.int32), ends]))
        self._set("block_indices", np.concatenate(tables).astype(np.int32))
        self._set("block_indices_begins", np.cumsum([0] + [len(table) for table in tables], dtype=np.int32))
        self._set("max_context_len", np.array(totals.max(), np.int32))

    def _set(self, name: str, array: npt.NDArray[Any]) -> None:
        from openvino import Tensor

        self._request.set_tensor(name, Tensor(array))


def _read(folder: Path) -> tuple[Any, Any]:
    """The runtime and the model, its attention rewritten to block tables."""
    import openvino
    from openvino._offline_transformations import paged_attention_transformation

    path = folder / "openvino_model.xml"
    if not path.is_file():
        raise ToolchainError("no openvino_model.xml", where=str(folder), fix="run specbuild compile")
    core = openvino.Core()
    try:
        model = core.read_model(path)
        paged_attention_transformation(model)
    except RuntimeError as error:
        raise ToolchainError(f"not a causal language model that OpenVINO can page: {error}", where=str(path)) from error
    return core, model


def _pick_logit_rows(model: Any) -> bool:
    """Put a row selection (input ``logit_rows`` int64 [rows]) before the output projection.

    Logits that nobody reads are then not computed. False where the model does not end in a projection; rows are then
    picked from the output.
    """
    import openvino
    from openvino import opset13 as ops

    node = model.get_results()[0].input_value(0).get_node()
    while node.get_type_name() in {"Add", "Convert", "Divide", "Multiply", "Tanh"}:
        node = node.input_value(0).get_node()
    if node.get_type_name() != "MatMul" or node.input_value(0).get_partial_shape().rank.get_length() != 3:
        return False
    rows = ops.parameter([-1], openvino.Type.i64, name="logit_rows")
    rows.output(0).set_names({"logit_rows"})
    picked = ops.gather(node.input_value(0), rows, ops.constant(0, openvino.Type.i64))
    node.input(0).replace_source_output(picked.output(0))
    model.add_parameters([rows])
    model.validate_nodes_and_infer_types()
    return True


def _attach_cache(compiled: Any, request: Any, limits: CacheLimits) -> int:
    """Allocate the cache tensors of every layer; returns the number of blocks."""
    import openvino

    ports = [port for port in compiled.inputs if "_cache." in port.any_name]
    shapes = {port.any_name: [axis.get_length() for axis in list(port.partial_shape)[1:]] for port in ports}
    block_bytes = sum(math.prod(shapes[port.any_name]) * port.element_type.bitwidth // 8 for port in ports)
    blocks: int = max(1, min(-(-limits.tokens // BLOCK_TOKENS), limits.bytes // block_bytes))
    for port in ports:
        shape = openvino.Shape([blocks, *shapes[port.any_name]])
        request.set_tensor(port.any_name, openvino.Tensor(port.element_type, shape))
    return blocks
