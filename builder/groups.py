"""The group size of int4 weights: columns of a row that share one scale."""

from __future__ import annotations

from collections.abc import Mapping

GROUP_SIZES = (128, 64, 32)
_KEPT_INT8 = ("embed", "wte", "wpe", "lm_head", "embed_out")
"""Tables and heads, by part of their name: int4 compression leaves them at int8."""


def group_size(tensors: Mapping[str, tuple[int, ...]]) -> int | None:
    """The largest of 128, 64 and 32 that divides the input width of every weight that becomes int4, or None.

    ``tensors`` maps the name of every stored weight to its shape.
    """
    widths = {shape[-1] for name, shape in tensors.items() if becomes_int4(name, shape)}
    return next((size for size in GROUP_SIZES if all(width % size == 0 for width in widths)), None)


def becomes_int4(name: str, shape: tuple[int, ...]) -> bool:
    """A weight is a matrix of a layer, not a table of tokens or positions, nor the head."""
    return len(shape) >= 2 and not any(part in name for part in _KEPT_INT8)
