"""OpenVINO IR written and read, with errors that say why."""

from __future__ import annotations

from pathlib import Path

import openvino as ov

from specbuild.errors import BuildError


def save(model: ov.Model, path: Path) -> None:
    """Write a model as it is. Raises OSError where the disk refuses, BuildError where OpenVINO does."""
    try:
        ov.save_model(model, path, compress_to_fp16=False)
    except RuntimeError as error:
        for part in (path, path.with_suffix(".bin")):  # OpenVINO never says why; a write of ours does
            with part.open("ab") as file:
                file.write(bytes(1 << 16))
        raise BuildError(f"OpenVINO could not write the model: {error}", where=str(path)) from error


def read(path: Path) -> ov.Model:
    """Read a model back. Raises BuildError where it is damaged."""
    try:
        return ov.Core().read_model(path)
    except RuntimeError as error:
        raise BuildError(f"the model cannot be read back: {error}", where=str(path)) from error
