"""A target made from its draft: the same Llama network inside a wider and deeper one.

The draft's weights sit in the top left corner of the target's, its layers evenly among the target's, so that with
``noise`` 0 both compute the same function while every pass of the target really does the larger network's work. All
other weights are random. Those that read the residual stream have unit gain; those that write into it (output and down
projections, the embedding's added columns) are scaled by ``noise``, which thereby sets how often the two disagree.

RMSNorm over the wider stream sees the same squares spread over more channels: with r = draft width / target width, the
mean square shrinks by r, so epsilon is multiplied by r and every gain by sqrt(r), and the result is the draft's.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specbuild.builder import modelfolder
from specbuild.builder.modelfolder import FloatArray, WeightDtype
from specbuild.errors import PairError, ProfileError

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
FINAL_NORM = "model.norm.weight"
WRITERS = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama network."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, config: dict[str, Any]) -> Shape:
        """The sizes that a Hugging Face config states."""
        heads = int(config["num_attention_heads"])
        return cls(
            layers=int(config["num_hidden_layers"]),
            hidden=int(config["hidden_size"]),
            intermediate=int(config["intermediate_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
        )

    def widened(self, layers: int, hidden: int) -> Shape:
        """The target's sizes: this head size and group size, 8/3 of the width inside the MLP.

        Raises ProfileError where the sizes do not hold this network or are no whole number of head groups.
        """
        group = self.heads // self.kv_heads
        if layers < self.layers or hidden < self.hidden or hidden % (self.head_dim * group):
            raise ProfileError(
                f"cannot widen {self.layers} layers x {self.hidden} to {layers} x {hidden}",
                fix=f"take at least that many layers, and a multiple of {self.head_dim * group} at least as wide",
            )
        heads = max(hidden // self.head_dim, self.heads)
        intermediate = max(256 * math.ceil(hidden * 8 / 3 / 256), self.intermediate)
        return Shape(layers, hidden, intermediate, heads, heads // group, self.head_dim)

    def tensor(self, part: str) -> tuple[int, ...]:
        """The shape of one of a layer's tensors."""
        query, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "self_attn.q_proj.weight": (query, self.hidden),
            "self_attn.k_proj.weight": (keys, self.hidden),
            "self_attn.v_proj.weight": (keys, self.hidden),
            "self_attn.o_proj.weight": (self.hidden, query),
            "mlp.gate_proj.weight": (self.intermediate, self.hidden),
            "mlp.up_proj.weight": (self.intermediate, self.hidden),
            "mlp.down_proj.weight": (self.hidden, self.intermediate),
            "input_layernorm.weight": (self.hidden,),
            "post_attention_layernorm.weight": (self.hidden,),
        }[part]


PARTS = (
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
)


def widen(
    draft: Path, out: Path, *, layers: int, hidden: int, noise: float, seed: int, dtype: WeightDtype = "float16"
) -> Path:
    """Write the folder of a target of ``layers`` x ``hidden`` around the Llama in ``draft``; returns ``out``.

    The same arguments give the same bytes on every machine. Raises PairError where the draft is no plain Llama,
    ProfileError where sizes do not fit, BuildError where ``out`` is in use or the disk refuses.
    """
    config = modelfolder.read_json(draft / modelfolder.CONFIG)
    small = Shape.of(config)
    tensors = modelfolder.read_tensors(draft)
    _refuse_unknown(config, tensors, small, draft)
    wide = small.widened(layers, hidden)
    with modelfolder.new_folder(out) as folder:
        modelfolder.write_json(folder / modelfolder.CONFIG, _wide_config(config, small, wide, dtype))
        modelfolder.copy_tokenizer(draft, folder)
        widened = _wide_tensors(tensors, small, wide, noise, seed)
        modelfolder.write_tensors(folder / modelfolder.WEIGHTS, widened, dtype)
    return out


def _refuse_unknown(config: dict[str, Any], tensors: dict[str, FloatArray], small: Shape, draft: Path) -> None:
    known = {f"model.layers.{layer}.{part}" for layer in range(small.layers) for part in PARTS}
    missing = sorted((known | {EMBEDDING, FINAL_NORM}) - tensors.keys())
    unknown = sorted(tensors.keys() - known - {EMBEDDING, FINAL_NORM, HEAD})
    if config.get("model_type") != "llama" or missing or unknown:
        found = f"model_type {config.get('model_type')!r}, missing {missing[:3]}, unknown {unknown[:3]}"
        raise PairError(f"only a plain Llama without biases can be widened: {found}", where=str(draft))


def _wide_config(config: dict[str, Any], small: Shape, wide: Shape, dtype: WeightDtype) -> dict[str, Any]:
    changed = {
        "hidden_size": wide.hidden,
        "intermediate_size": wide.intermediate,
        "num_hidden_layers": wide.layers,
        "num_attention_heads": wide.heads,
        "num_key_value_heads": wide.kv_heads,
        "head_dim": wide.head_dim,
        "rms_norm_eps": config["rms_norm_eps"] * small.hidden / wide.hidden,
    }
    changed |= {key: dtype for key in ("dtype", "torch_dtype") if key in config}
    return {**config, **changed}


def _wide_tensors(
    tensors: dict[str, FloatArray], small: Shape, wide: Shape, noise: float, seed: int
) -> Iterator[tuple[str, FloatArray]]:
    loudness = noise * float(np.sqrt(np.mean(np.square(tensors[EMBEDDING]))))
    gain = math.sqrt(small.hidden / wide.hidden)
    homes = {index * wide.layers // small.layers: index for index in range(small.layers)}
    for name in (EMBEDDING, HEAD):
        if name in tensors:
            shape = (tensors[name].shape[0], wide.hidden)
            yield name, _around(tensors[name], _random(name, shape, loudness, seed))
    yield FINAL_NORM, _around(gain * tensors[FINAL_NORM], np.full(wide.hidden, gain, np.float32))
    for layer in range(wide.layers):
        for part in PARTS:
            name, sizes = f"model.layers.{layer}.{part}", wide.tensor(part)
            inner = tensors[f"model.layers.{homes[layer]}.{part}"] if layer in homes else None
            if len(sizes) == 1:
                whole = np.full(sizes, gain if layer in homes else 1.0, np.float32)
                yield name, whole if inner is None else _around(gain * inner, whole)
            else:
                whole = _random(name, sizes, loudness if part in WRITERS else 1.0, seed)
                yield name, whole if inner is None else _around(inner, whole)


def _around(inner: FloatArray, outer: FloatArray) -> FloatArray:
    """``outer`` with ``inner`` in its top left corner (written in place)."""
    outer[tuple(slice(0, size) for size in inner.shape)] = inner
    return outer


def _random(name: str, shape: tuple[int, ...], scale: float, seed: int) -> FloatArray:
    """Uniform weights of standard deviation scale / sqrt(input width), from the raw bits that NumPy keeps stable."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    bits = np.random.PCG64(np.random.SeedSequence(int.from_bytes(digest[:16], "little")))
    count = math.prod(shape)
    values = bits.random_raw(-(-count // 4)).astype("<u8", copy=False).view("<i2")[:count].reshape(shape)
    return values * np.float32(scale * math.sqrt(3 / shape[-1]) / 32768)
