"""Weight matrices as OpenVINO constants of 16 bits, widened where they are used."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import Type
from openvino import opset13 as op

from specbuild.builder.weights import to_bf16
from specbuild.errors import BuildError

WeightDtype = Literal["fp16", "bf16", "stored"]
"""``stored``: a matrix keeps the type that its file has."""

_STORED = {"fp16": "F16", "bf16": "BF16"}
_TYPE = {"F16": Type.f16, "BF16": Type.bf16, "F32": Type.f32}


def matrix(name: str, raw: npt.NDArray[Any], stored: str, dtype: WeightDtype) -> Any:
    """A node that gives a matrix as float32, kept as a constant of ``dtype``, rounded to nearest even.

    ``raw`` holds elements of the safetensors type ``stored``; bf16 as uint16. Raises BuildError where a value is
    beyond fp16.
    """
    wanted = _STORED.get(dtype, stored)
    bits = raw if stored == wanted else _narrowed(name, _float32(raw, stored), wanted)
    held = ov.Tensor(_TYPE[wanted], list(raw.shape))  # memory of its own: a constant does not keep NumPy's alive
    held.data.view(bits.dtype)[...] = bits
    constant = ov.op.Constant(held)
    constant.set_friendly_name(name)
    return constant if wanted == "F32" else op.convert(constant, "f32")


def _float32(raw: npt.NDArray[Any], stored: str) -> npt.NDArray[np.float32]:
    return (raw.astype(np.uint32) << 16).view(np.float32) if stored == "BF16" else raw.astype(np.float32)


def _narrowed(name: str, wide: npt.NDArray[np.float32], wanted: str) -> npt.NDArray[Any]:
    if wanted == "BF16":
        return to_bf16(wide)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float16)
    if np.isinf(narrow).any():
        raise BuildError(
            f"{name} holds {np.abs(wide).max():.3g}, beyond fp16's 65504", fix="use precision bf16 or int8"
        )
    return narrow
