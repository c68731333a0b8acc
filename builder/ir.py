"""OpenVINO IR written and read, with errors that say why."""

from __future__ import annotations

import os
from pathlib import Path

import openvino as ov

from specbuild.errors import BuildError
from specbuild.units import MIB


def save(model: ov.Model, path: Path) -> None:
    """Write a model as it is. Raises OSError where the disk refuses, BuildError where OpenVINO does."""
    try:
        ov.save_model(model, path, compress_to_fp16=False)
    except RuntimeError as error:
        _reserve(path.with_suffix(".probe"), _bytes(model))  # OpenVINO never says that a disk is full; this does
        raise BuildError(f"OpenVINO could not write the model: {error}", where=str(path)) from error


def read(path: Path) -> ov.Model:
    """Read a model back. Raises BuildError where it is damaged."""
    try:
        return ov.Core().read_model(path)
    except RuntimeError as error:
        raise BuildError(f"the model cannot be read back: {error}", where=str(path)) from error


def _bytes(model: ov.Model) -> int:
    """What a model takes on disk, at least."""
    constants = [node for node in model.get_ops() if node.get_type_name() == "Constant"]
    return MIB + sum(int(node.get_byte_size()) for node in constants)


def _reserve(path: Path, size: int) -> None:
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    finally:
        path.unlink(missing_ok=True)
