"""The base of everything that crosses a file: frozen, strict about keys, digestible."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from specbuild.errors import Fault, ProfileError


class Record(BaseModel):
    """A frozen record; an unknown key is an error, and the text under a field is its schema description."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        ser_json_bytes="base64",
    )

    def to_json(self) -> str:
        """Indented JSON with a final newline, keys in field order."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=2, ensure_ascii=False) + "\n"

    def digest(self) -> str:
        """sha256 (hex) of the canonical JSON of this record."""
        return digest_of(self.model_dump(mode="json", by_alias=True))

    def write(self, path: Path) -> None:
        """Write the record atomically: beside, fsync, rename."""
        write_atomically(path, self.to_json().encode())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a record back.

        Raises ProfileError (exit 2) that names the file and every wrong field.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ProfileError(f"cannot read {path}: {error}") from error
        try:
            return cls.model_validate_json(text, strict=True)
        except ValidationError as error:
            raise ProfileError(
                Fault(f"{'.'.join(map(str, item['loc'])) or 'file'}: {item['msg']}", where=str(path))
                for item in error.errors()
            ) from error


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, UTF-8; the bytes that digests are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_of(value: Any) -> str:
    """sha256 (hex) of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` so that a reader sees the old file or the whole new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name itself outlives a power cut
    finally:
        os.close(folder)
