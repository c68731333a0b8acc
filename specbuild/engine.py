"""A compiled engine: a folder and the manifest that says what it was made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from specbuild.profile import Precision
from specbuild.record import Record, digest_of

MANIFEST = "engine.json"


class Manifest(Record):
    """What lies beside every engine."""

    schema_version: Literal[1] = 1
    key: str
    """sha256 of ``inputs``; the name of the engine in the store."""
    stack: str
    precision: Precision
    inputs: dict[str, str | int | float | bool | None]
    """Everything that the engine depends on, by name: file digests, precision, tool versions, settings."""
    files: dict[str, str]
    """Every file of the engine → sha256."""
    sizes: dict[str, int] = Field(default_factory=dict)
    """Every file of the engine → bytes."""
    source: str = ""
    """The model folder that it was built from; a label, no part of the key."""
    architecture: str
    vocab_size: int
    layers: int
    kv_heads: int
    head_dim: int
    max_position: int
    """Longest context, tokens."""
    parameters: int
    weight_bytes: int
    """Size of the compressed weights on disk, bytes."""
    eos_ids: tuple[int, ...]
    created: str
    """UTC, ISO 8601."""
    seconds: float
    """Wall time of the build."""
    notes: tuple[str, ...] = ()
    """Choices that the build made by itself, such as the group size of int4 weights."""


@dataclass(frozen=True)
class Engine:
    """An engine on disk. ``folder`` holds OpenVINO IR (``openvino_model.xml``), tokenizer IR and configs."""

    folder: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: Path) -> Engine:
        """Read an engine's manifest. Raises ProfileError where it is missing or damaged."""
        return cls(folder, Manifest.read(folder / MANIFEST))


@dataclass(frozen=True)
class Engines:
    """The two engines of a pair."""

    target: Engine
    draft: Engine

    @property
    def digest(self) -> str:
        """Identity of the pair: sha256 over both keys."""
        return digest_of({"target": self.target.manifest.key, "draft": self.draft.manifest.key})
