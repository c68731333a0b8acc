"""What a pair needs of memory while it serves: weights and KV caches, in bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specbuild.builder.groups import becomes_int4, group_size
from specbuild.pair import ModelFacts, Pair
from specbuild.profile import Numerics, Precision, Profile
from specbuild.units import GIB, MIB, human_bytes

_KV_ELEMENT = {"exact": 4, "fast": 2}
"""Bytes of a cached key or value: float32 where arithmetic is exact, else at most bf16."""

_PROGRAM = 256 * MIB
"""About 190 MiB were measured for both pipelines of a target of 189 M parameters."""


@dataclass(frozen=True)
class Row:
    """One line of a memory plan."""

    what: str
    bytes: int


def plan(profile: Profile, pair: Pair) -> tuple[Row, ...]:
    """Memory of the fused graph, which holds the target twice: with the draft, and alone for speculation off."""
    target = weight_bytes(pair.target, profile.target.precision)
    draft = weight_bytes(pair.draft, profile.draft.precision)
    pool = profile.limits.kv_cache_gib * GIB
    return (
        Row(f"target weights ({profile.target.precision})", target),
        Row("target weights again, for speculation off", target),
        Row(f"draft weights ({profile.draft.precision})", draft),
        Row("KV pool of the target", pool),
        Row("KV pool of the target, for speculation off", pool),
        Row("KV pool of the draft", pool),
        Row("libraries and activations", _PROGRAM),
    )


def table(rows: tuple[Row, ...]) -> str:
    """The plan as lines of text, its sum last."""
    lines = [*rows, Row("sum", total(rows))]
    return "\n".join(f"    {human_bytes(row.bytes):>10}  {row.what}" for row in lines)


def total(rows: tuple[Row, ...]) -> int:
    """Bytes of all rows."""
    return sum(row.bytes for row in rows)


def weight_bytes(facts: ModelFacts, precision: Precision) -> int:
    """Size of a model's weights on disk.

    int8: a byte a weight, an fp16 scale and a zero point a row; int4: half a byte, an fp16 scale a group. Vectors stay
    float32.
    """
    columns = group_size(facts.tensors) or 128
    count = 0.0
    for name, shape in facts.tensors.items():
        size = math.prod(shape)
        if len(shape) < 2:
            count += 4 * size
        elif precision in ("fp16", "bf16"):
            count += 2 * size
        elif precision == "int4" and becomes_int4(name, shape):
            count += size / 2 + 2 * size / columns
        else:
            count += size + 3 * size / shape[-1]
    return int(count)


def kv_bytes(facts: ModelFacts, tokens: int, numerics: Numerics) -> int:
    """Keys and values of ``tokens`` tokens."""
    return 2 * facts.layers * facts.kv_heads * facts.head_dim * _KV_ELEMENT[numerics] * tokens
