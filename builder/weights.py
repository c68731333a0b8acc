"""Safetensors files by their headers; tensors mapped from disk, never loaded whole."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from specbuild.errors import ProfileError

INDEX = "model.safetensors.index.json"
_WIDTH: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
"""Element types that a model may be stored in; bf16 is read as its 16 bits."""
_LARGEST_HEADER = 100_000_000


@dataclass(frozen=True)
class Tensor:
    """Where one tensor lies: bytes ``begin:end`` of ``file``, row-major."""

    file: Path
    dtype: str
    """``F32``, ``F16`` or ``BF16``."""
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def raw(self) -> npt.NDArray[Any]:
        """The elements, mapped read-only: float32, float16, or uint16 holding bf16."""
        if not self.size:
            return np.empty(self.shape, _WIDTH[self.dtype])
        return np.memmap(self.file, _WIDTH[self.dtype], "r", self.begin, self.shape)

    def float32(self) -> npt.NDArray[np.float32]:
        """The elements widened to float32, exactly."""
        raw = self.raw()
        if self.dtype == "BF16":
            return (raw.astype(np.uint32) << 16).view(np.float32)
        return np.asarray(raw, np.float32)


def to_bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Float32 rounded to bf16, nearest even, as 16 bits each; infinities and NaN are kept."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up a model: those of its index, else ``model.safetensors``, else all.

    Raises ProfileError where the index is damaged.
    """
    index = folder / INDEX
    if index.is_file():
        try:
            names = set(json.loads(index.read_bytes())["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ProfileError(f"not a safetensors index: {error}", where=str(index)) from error
        return [folder / str(name) for name in sorted(names)]
    single = folder / "model.safetensors"
    return [single] if single.is_file() else sorted(folder.glob("*.safetensors"))


def read_header(file: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file by name, from its header.

    Raises ProfileError: unreadable, not safetensors, cut off, or of an element type that is not float.
    """
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= _LARGEST_HEADER:
                raise ValueError(f"a header of {length} bytes")
            header: Any = json.loads(stream.read(length))
            stream.seek(0, 2)
            size = stream.tell()
        start = 8 + length
        tensors = {
            name: Tensor(
                file, item["dtype"], tuple(map(int, item["shape"])), *(start + int(at) for at in item["data_offsets"])
            )
            for name, item in header.items()
            if name != "__metadata__"
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProfileError(f"not a safetensors file: {error}", where=str(file), fix="fetch the file again") from error
    _check(file, tensors, size)
    return tensors


def _check(file: Path, tensors: Mapping[str, Tensor], size: int) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype not in _WIDTH:
            raise ProfileError(
                f"{name} is stored as {tensor.dtype}; weights must be F32, F16 or BF16",
                where=str(file),
                fix="name the folder of the unquantized model",
            )
        if tensor.end - tensor.begin != tensor.size * _WIDTH[tensor.dtype].itemsize:
            raise ProfileError(f"{name}: its bytes do not fit its shape {list(tensor.shape)}", where=str(file))
    end = max((tensor.end for tensor in tensors.values()), default=0)
    if end > size:
        raise ProfileError(
            f"cut off: {size} bytes of {end}", where=str(file), fix="fetch the file again; its download did not finish"
        )
