"""The family of decoders that our own exporter builds: Llama, Mistral, Qwen2 and Qwen3, described by numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
GRAPH_SCHEMA = 2
"""Version of the graphs that llama_graph makes; part of every engine's key."""

_QKV = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True)
class Llama:
    """A decoder of this family: RMSNorm, rotary positions, grouped-query attention, SwiGLU."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_eps: float
    tied: bool
    """The head is the embedding."""
    biased: frozenset[str]
    """Projections that add a bias, such as ``q_proj``."""
    qk_norm: bool
    """Queries and keys are RMS-normalised per head (Qwen3)."""
    inv_freq: npt.NDArray[np.float32] = field(repr=False)
    """float32 [head_dim / 2]: radians a position."""

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Every tensor that the model has → its shape."""
        found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, self.hidden_size)}
        for layer in range(self.layers):
            found.update(self._layer(f"model.layers.{layer}"))
        found["model.norm.weight"] = (self.hidden_size,)
        if not self.tied:
            found["lm_head.weight"] = (self.vocab_size, self.hidden_size)
        return found

    def _layer(self, prefix: str) -> dict[str, tuple[int, ...]]:
        hidden, inner = self.hidden_size, self.intermediate_size
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        matrices = {
            "self_attn.q_proj": (query, hidden),
            "self_attn.k_proj": (key, hidden),
            "self_attn.v_proj": (key, hidden),
            "self_attn.o_proj": (hidden, query),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        vectors = {"input_layernorm.weight": hidden, "post_attention_layernorm.weight": hidden}
        vectors |= {f"{name}.bias": shape[0] for name, shape in matrices.items() if name.split(".")[1] in self.biased}
        if self.qk_norm:
            vectors |= {"self_attn.q_norm.weight": self.head_dim, "self_attn.k_norm.weight": self.head_dim}
        return {f"{prefix}.{name}.weight": shape for name, shape in matrices.items()} | {
            f"{prefix}.{name}": (size,) for name, size in vectors.items()
        }


def refusal(config: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> str | None:
    """Why our exporter cannot build this model, or None.

    ``config`` is config.json, ``tensors`` the name → shape of every stored weight.
    """
    if _architecture(config) not in ARCHITECTURES:
        return f"it has no graph for {_architecture(config)}"
    try:
        return _unsupported(config, tensors)
    except (KeyError, TypeError, ValueError) as error:
        return f"config.json does not say all that it needs: {type(error).__name__}: {error}"


def _unsupported(config: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> str | None:
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        return f"it has no {config['hidden_act']} activation"
    if _slides(_architecture(config), config):
        return "it has no sliding-window attention"
    rope = _rope(config)
    if rope["rope_type"] not in ("default", "linear", "llama3"):
        return f"it has no rotary scaling of type {rope['rope_type']!r}"
    if float(rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0) != 1.0:
        return "it has no partial rotary embedding"
    unknown = [name for name in sorted(set(tensors) - set(spec(config).weights())) if not _ignored(name)]
    return f"it does not know the weight {unknown[0]}" if unknown else None


def weight_faults(config: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> list[str]:
    """What the stored weights of a model that ``refusal`` accepts lack against its config.json."""
    faults = []
    for name, shape in spec(config).weights().items():
        if name not in tensors:
            faults.append(f"the weights have no {name}")
        elif tensors[name] != shape:
            faults.append(f"{name} is {list(tensors[name])} in the weights but {list(shape)} by config.json")
    return faults


def spec(config: Mapping[str, Any]) -> Llama:
    """The model that a config.json describes; defaults are those of transformers' configuration classes."""
    architecture = _architecture(config)
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    size = head_dim(config, hidden, heads)
    return Llama(
        vocab_size=int(config["vocab_size"]),
        hidden_size=hidden,
        intermediate_size=int(config["intermediate_size"]),
        layers=int(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=size,
        rms_eps=float(config.get("rms_norm_eps", 1e-6)),
        tied=bool(config.get("tie_word_embeddings", False)),
        biased=_biased(architecture, config),
        qk_norm=architecture == "Qwen3ForCausalLM",
        inv_freq=_inv_freq(_rope(config), size),
    )


def head_dim(config: Mapping[str, Any], hidden_size: int, heads: int) -> int:
    """Size of one attention head; transformers gives Qwen3 128 where its config.json says nothing."""
    assumed = 128 if _architecture(config) == "Qwen3ForCausalLM" else hidden_size // heads
    return int(config.get("head_dim") or assumed)


def _biased(architecture: str, config: Mapping[str, Any]) -> frozenset[str]:
    if architecture == "Qwen2ForCausalLM":
        return frozenset(_QKV)
    biased: tuple[str, ...] = ()
    if architecture != "MistralForCausalLM" and config.get("attention_bias"):
        biased += (*_QKV, "o_proj")
    if architecture == "LlamaForCausalLM" and config.get("mlp_bias"):
        biased += ("gate_proj", "up_proj", "down_proj")
    return frozenset(biased)


def _slides(architecture: str, config: Mapping[str, Any]) -> bool:
    if architecture == "MistralForCausalLM":
        window = config.get("sliding_window", 4096)
        return bool(window and int(window) < int(config.get("max_position_embeddings", 131072)))
    return bool(config.get("use_sliding_window") and config.get("sliding_window"))


def _ignored(name: str) -> bool:
    """Stored by some versions, and used by none: the copy of a tied head, the rotary table."""
    return name == "lm_head.weight" or name.endswith("rotary_emb.inv_freq")


def _architecture(config: Mapping[str, Any]) -> str:
    return str((config.get("architectures") or ["no architecture"])[0])


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary settings in the words of transformers 5, whichever version wrote the file."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope["rope_type"] = rope.get("rope_type") or rope.get("type") or "default"
    rope.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    return rope


def _inv_freq(rope: Mapping[str, Any], head_dim: int) -> npt.NDArray[np.float32]:
    """``theta ** (-2 i / head_dim)``, then the scaling of the model (transformers ``modeling_rope_utils``)."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    plain = (1.0 / np.float32(rope["rope_theta"]) ** exponents).astype(np.float32)
    if rope["rope_type"] == "linear":
        return (plain / np.float32(rope["factor"])).astype(np.float32)
    if rope["rope_type"] != "llama3":
        return plain
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    turns = float(rope["original_max_position_embeddings"]) * plain / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return ((1 - smooth) * plain / float(rope["factor"]) + smooth * plain).astype(np.float32)
