"""OpenVINO graphs of Llama-like decoders, built from safetensors without torch.

The graph is stateful as optimum-intel's is: inputs ``input_ids``, ``attention_mask``, ``position_ids`` (int64,
[batch, tokens]; the mask covers cached and new tokens) and ``beam_idx`` (int32 [batch]), output ``logits`` (float32
[batch, tokens, vocab]) for every position given. Its attention is the pattern that OpenVINO GenAI turns into paged
attention, and its norms and rotations are those that the CPU plugin fuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import openvino as ov
from openvino import Type
from openvino import opset13 as op
from openvino.op import assign, read_value
from openvino.op.util import Variable, VariableInfo

from specbuild.builder.stacks.constants import WeightDtype, matrix
from specbuild.builder.stacks.llama import Llama
from specbuild.builder.weights import Tensor

_MASKED = -65504.0
"""Added to the scores of masked tokens: fp16's lowest number, so that half-precision kernels hold it."""


def build(llama: Llama, weights: Mapping[str, Tensor], dtype: WeightDtype) -> ov.Model:
    """The model's graph with its weight matrices as ``dtype`` constants; vectors stay float32.

    Raises BuildError where a weight does not fit ``dtype``.
    """
    return _Graph(llama, weights, dtype).model()


@dataclass(frozen=True)
class _Cache:
    """Keys or values of a layer: ``past`` [batch, kv_heads, cached, head_dim], and the variable that holds them."""

    past: Any
    variable: Any


class _Graph:
    """One graph in the making."""

    def __init__(self, llama: Llama, weights: Mapping[str, Tensor], dtype: WeightDtype) -> None:
        self.llama = llama
        self.weights = weights
        self.dtype = dtype
        self.input_ids = _parameter("input_ids", Type.i64, 2)
        self.attention_mask = _parameter("attention_mask", Type.i64, 2)
        self.position_ids = _parameter("position_ids", Type.i64, 2)
        self.beam_idx = _parameter("beam_idx", Type.i32, 1)
        self.sinks: list[Any] = []

    def model(self) -> ov.Model:
        llama = self.llama
        table = self._matrix("model.embed_tokens.weight")
        hidden = op.gather(table, op.convert(self.input_ids, "i32"), _int(0))
        cos, sin = self._rotation()
        bias: Any = None
        for layer in range(llama.layers):
            prefix = f"model.layers.{layer}"
            normed = self._rms_norm(hidden, f"{prefix}.input_layernorm")
            keys, values = self._cache(layer, "key"), self._cache(layer, "value")
            bias = self._mask_bias(keys) if bias is None else bias
            hidden = op.add(hidden, self._attention(normed, f"{prefix}.self_attn", (keys, values), (cos, sin), bias))
            normed = self._rms_norm(hidden, f"{prefix}.post_attention_layernorm")
            hidden = op.add(hidden, self._mlp(normed, f"{prefix}.mlp"))
        hidden = self._rms_norm(hidden, "model.norm")
        head = table if llama.tied else self._matrix("lm_head.weight")
        logits = op.matmul(hidden, head, False, True, name="lm_head")
        result = op.result(logits, name="logits")
        result.output(0).get_tensor().set_names({"logits"})
        parameters = [self.input_ids, self.attention_mask, self.position_ids, self.beam_idx]
        return ov.Model([result], self.sinks, parameters, "decoder")

    def _attention(
        self, x: Any, prefix: str, cache: tuple[_Cache, _Cache], rotation: tuple[Any, Any], bias: Any
    ) -> Any:
        llama = self.llama
        query = self._heads(x, f"{prefix}.q_proj", llama.heads, f"{prefix}.q_norm")
        key = self._heads(x, f"{prefix}.k_proj", llama.kv_heads, f"{prefix}.k_norm")
        value = self._heads(x, f"{prefix}.v_proj", llama.kv_heads, None)
        key = self._extended(cache[0], self._rotated(key, rotation))
        value = self._extended(cache[1], value)
        scale = _float(llama.head_dim**-0.5)
        context = op.scaled_dot_product_attention(
            self._rotated(query, rotation), self._grouped(key), self._grouped(value), bias, scale, name=f"{prefix}.sdpa"
        )
        rows = op.reshape(op.transpose(context, _ints(0, 2, 1, 3)), _ints(0, 0, llama.heads * llama.head_dim), True)
        return self._linear(rows, f"{prefix}.o_proj")

    def _heads(self, x: Any, projection: str, heads: int, norm: str | None) -> Any:
        """[batch, tokens, hidden] → [batch, heads, tokens, head_dim]."""
        split = op.reshape(self._linear(x, projection), _ints(0, 0, heads, self.llama.head_dim), True)
        if norm and self.llama.qk_norm:
            split = self._rms_norm(split, norm)
        return op.transpose(split, _ints(0, 2, 1, 3))

    def _mlp(self, x: Any, prefix: str) -> Any:
        gate = op.swish(self._linear(x, f"{prefix}.gate_proj"))
        return self._linear(op.multiply(gate, self._linear(x, f"{prefix}.up_proj")), f"{prefix}.down_proj")

    def _linear(self, x: Any, name: str) -> Any:
        y = op.matmul(x, self._matrix(f"{name}.weight"), False, True, name=name)
        bias = f"{name}.bias"
        return op.add(y, self._vector(bias)) if name.rsplit(".", 1)[-1] in self.llama.biased else y

    def _rms_norm(self, x: Any, name: str) -> Any:
        """``x / sqrt(mean(x^2) + eps) * weight``, written as the plugin's RMS fusion expects it."""
        mean = op.reduce_mean(op.power(x, _float(2)), _ints(-1), True)
        root = op.sqrt(op.add(mean, _float(self.llama.rms_eps)))
        scaled = op.multiply(x, op.divide(_float(1), root))
        return op.multiply(scaled, self._vector(f"{name}.weight"), name=name)

    def _rotation(self) -> tuple[Any, Any]:
        """Cosine and sine of every position's angles, float32 [batch, 1, tokens, head_dim]."""
        frequencies = op.constant(self.llama.inv_freq.reshape(1, -1, 1))
        positions = op.convert(op.unsqueeze(self.position_ids, _ints(1)), "f32")
        half = op.transpose(op.matmul(frequencies, positions, False, False), _ints(0, 2, 1))
        angles = op.concat([half, half], -1)
        return op.unsqueeze(op.cos(angles), _ints(1)), op.unsqueeze(op.sin(angles), _ints(1))

    def _rotated(self, x: Any, rotation: tuple[Any, Any]) -> Any:
        half = self.llama.head_dim // 2
        first = op.slice(x, _ints(0), _ints(half), _ints(1), _ints(3))
        second = op.slice(x, _ints(half), _ints(np.iinfo(np.int64).max), _ints(1), _ints(3))
        turned = op.concat([op.multiply(second, _float(-1)), first], -1)
        return op.add(op.multiply(x, rotation[0]), op.multiply(turned, rotation[1]))

    def _cache(self, layer: int, kind: str) -> _Cache:
        heads, head_dim = self.llama.kv_heads, self.llama.head_dim
        info = VariableInfo()
        info.data_shape = ov.PartialShape([-1, heads, -1, head_dim])
        info.data_type = Type.f32
        info.variable_id = f"past_key_values.{layer}.{kind}present.{layer}.{kind}"
        variable = Variable(info)
        batch = op.gather(op.shape_of(self.input_ids), _ints(0), _int(0))
        empty = op.broadcast(_float(0), op.concat([batch, _ints(heads, 0, head_dim)], 0))
        return _Cache(op.gather(read_value(empty, variable), self.beam_idx, _int(0)), variable)

    def _extended(self, cache: _Cache, new: Any) -> Any:
        """Cached and new together; what the cache holds after this pass."""
        whole = op.concat([cache.past, new], 2)
        self.sinks.append(assign(whole, cache.variable))
        return whole

    def _grouped(self, x: Any) -> Any:
        """Each key or value head repeated for the query heads of its group."""
        llama = self.llama
        if llama.kv_heads == llama.heads:
            return x
        shape = _ints(1, 1, llama.heads // llama.kv_heads, 1, 1)
        repeated = op.broadcast(op.unsqueeze(x, _ints(2)), shape, broadcast_spec="BIDIRECTIONAL")
        return op.reshape(repeated, _ints(0, llama.heads, -1, llama.head_dim), True)

    def _mask_bias(self, cache: _Cache) -> Any:
        """What is added to the scores, float32 [batch, 1, tokens, cached + tokens].

        A token sees those before it and itself, but for those whose ``attention_mask`` is 0.
        """
        cached = op.gather(op.shape_of(cache.past), _int(2), _int(0))
        tokens = op.gather(op.shape_of(self.input_ids), _int(1), _int(0))
        total = op.add(cached, tokens)
        keys = op.unsqueeze(op.range(_int(0), total, _int(1), "i64"), _ints(0, 1, 2))
        queries = op.unsqueeze(op.range(cached, total, _int(1), "i64"), _ints(0, 1, 3))
        kept = op.unsqueeze(op.convert(self.attention_mask, "boolean"), _ints(1, 2))
        return op.select(op.logical_and(op.less_equal(keys, queries), kept), _float(0), _float(_MASKED))

    def _vector(self, name: str) -> Any:
        return op.constant(self.weights[name].float32())

    def _matrix(self, name: str) -> Any:
        tensor = self.weights[name]
        return matrix(name, tensor.raw(), tensor.dtype, self.dtype)


def _parameter(name: str, kind: Type, rank: int) -> Any:
    parameter = op.parameter([-1] * rank, kind, name=name)
    parameter.output(0).get_tensor().set_names({name})
    return parameter


def _ints(*values: int) -> Any:
    return op.constant(np.array(values, np.int64))


def _int(value: int) -> Any:
    return op.constant(np.int64(value))


def _float(value: float) -> Any:
    return op.constant(np.float32(value))
