"""What the served model knows about itself: ``session.json`` and the policies of ``plan.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specbuild.runtime.open import Graph, Numerics, SessionSpec
from specbuild.runtime.policy import Banded, from_bands

SETTINGS = "session.json"
PLAN = "plan.json"
TARGET = "engines/target"
DRAFT = "engines/draft"


@dataclass(frozen=True)
class Settings:
    """The settings of one served version; written by ``layout``, read by the model."""

    pair: str
    """The profile's name; labels the counters."""
    pair_digest: str
    graph: Graph
    numerics: Numerics
    max_batch_size: int
    max_input_len: int
    """Prompt tokens of one request."""
    max_seq_len: int
    """Prompt and output tokens of one request."""
    max_draft_len: int
    """Longest draft_len that a request may ask for; 0 where the draft is left out."""
    kv_cache_gib: int
    vocab_size: int
    """Token ids are below this."""
    eos_ids: tuple[int, ...]
    prompt_bands: tuple[int, ...] = (20, 200)
    """Upper bounds, tokens, of the ``prompt_band`` label; one more band takes the rest."""
    schema_version: int = 1

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """The settings of a version folder. Raises OSError, ValueError, TypeError where they are damaged."""
        data: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        for name in ("eos_ids", "prompt_bands"):
            data[name] = tuple(data[name])
        settings = cls(**data)
        if settings.schema_version != 1:
            raise ValueError(f"schema_version {settings.schema_version} is not 1")
        return settings

    def to_json(self) -> str:
        """As ``read`` reads it."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def session(self, folder: Path) -> SessionSpec:
        """The session of a version folder."""
        return SessionSpec(
            target=folder / TARGET,
            draft=folder / DRAFT if self.max_draft_len else None,
            graph=self.graph,
            numerics=self.numerics,
            max_batch_size=self.max_batch_size,
            max_seq_len=self.max_seq_len,
            max_draft_len=max(self.max_draft_len, 1),
            kv_cache_gib=self.kv_cache_gib,
            speculative=self.max_draft_len > 0,
            eos_ids=self.eos_ids,
        )

    def prompt_band(self, prompt_len: int) -> str:
        """The label of a prompt's length, such as ``21-200``."""
        low = 0
        for high in self.prompt_bands:
            if prompt_len <= high:
                return f"{low}-{high}"
            low = high + 1
        return f"{low}+"

    @property
    def band_labels(self) -> tuple[str, ...]:
        """Every label that ``prompt_band`` gives."""
        return tuple(self.prompt_band(length) for length in (*self.prompt_bands, 1 + max(self.prompt_bands, default=0)))


def read_policies(folder: Path) -> Mapping[str, Banded]:
    """Budget name → policy of a version folder's plan; the first is the default."""
    plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    return {name: from_bands(choice["policy"]["bands"]) for name, choice in plan["choices"].items()}
