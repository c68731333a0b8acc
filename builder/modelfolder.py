"""A model folder in the Hugging Face layout: its config and tensors read, a new one written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from specbuild.builder.weights import read_header, to_bf16, weight_files
from specbuild.errors import BuildError, ProfileError

FloatArray = npt.NDArray[np.float32]
WeightDtype = Literal["float16", "bfloat16"]

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
)
_WRITTEN_AS: dict[WeightDtype, str] = {"float16": "F16", "bfloat16": "BF16"}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises ProfileError where the file is missing or is not one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProfileError(f"cannot read: {error}", where=str(path), fix="name a Hugging Face model folder") from error
    if not isinstance(value, dict):
        raise ProfileError("not a JSON object", where=str(path))
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Indented JSON with a final newline, keys as given."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_tensors(folder: Path) -> dict[str, FloatArray]:
    """Every tensor of a folder's safetensors files as float32 (bf16 and fp16 widen exactly).

    Raises ProfileError where there are none, or one is damaged or of another type.
    """
    files = weight_files(folder)
    if not files:
        raise ProfileError("no *.safetensors here", where=str(folder), fix="name a Hugging Face model folder")
    return {name: tensor.float32() for file in files for name, tensor in read_header(file).items()}


def write_tensors(path: Path, tensors: Iterable[tuple[str, FloatArray]], dtype: WeightDtype) -> None:
    """Write one safetensors file, each tensor rounded to nearest even and laid down in the order given.

    Written here because the safetensors library's NumPy side has no bf16.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    offset = 0
    for name, tensor in tensors:
        parts.append(_narrowed(tensor, dtype))
        span = [offset, offset + len(parts[-1])]
        header[name] = {"dtype": _WRITTEN_AS[dtype], "shape": list(tensor.shape), "data_offsets": span}
        offset = span[1]
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.writelines(parts)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill beside ``out``; it becomes ``out`` when the block ends well and is removed otherwise.

    Raises BuildError where ``out`` is there already with something in it, or the disk refuses.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BuildError("the output is there already", where=str(out), fix="remove it or name another folder")
    aside = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        aside.mkdir(parents=True)
        yield aside
        _sync(aside)
        aside.replace(out)
    except OSError as error:
        raise BuildError(f"cannot write the folder: {error}", where=str(out)) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def copy_tokenizer(source: Path, out: Path) -> None:
    """Copy a folder's tokenizer and generation config byte for byte."""
    for name in (*TOKENIZER_FILES, GENERATION_CONFIG):
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)


def _narrowed(tensor: FloatArray, dtype: WeightDtype) -> bytes:
    return tensor.astype("<f2").tobytes() if dtype == "float16" else to_bf16(tensor).astype("<u2").tobytes()


def _sync(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
