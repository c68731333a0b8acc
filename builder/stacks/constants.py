"""Weight matrices as OpenVINO constants of 16 bits, widened where they are used."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import Type
from openvino import opset13 as op
from openvino._offline_transformations import compress_model_transformation

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
    return constant if wanted == "F32" else _decompressed(constant)


def _decompressed(constant: Any) -> Any:
    """A constant of 16 bits widened by a node that the plugins know as a decompression.

    They would fold any other Convert into a float32 constant, at twice the memory. Python cannot set that mark, so a
    node that OpenVINO's own compression pass has marked is given this constant as its input.
    """
    placeholder = op.constant(np.zeros(1, np.float32))
    donor = ov.Model([op.result(placeholder)], [], "donor")
    compress_model_transformation(donor)
    (convert,) = (node for node in donor.get_ops() if node.get_type_name() == "Convert")
    convert.input(0).replace_source_output(constant.output(0))
    convert.validate_and_infer_types()
    return convert


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
