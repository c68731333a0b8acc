"""What is known about two models before anything is built, and what speaks against pairing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Role = Literal["target", "draft"]
Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class TokenizerFacts:
    """A tokenizer by content: what must be equal for a draft's tokens to mean the same to the target."""

    vocabulary: Mapping[str, int] = field(repr=False)
    """Token → id, added tokens included."""
    merges: tuple[str, ...] = field(repr=False)
    """BPE merges in order, ``left right``; empty for other models."""
    added: Mapping[str, int] = field(repr=False)
    special_ids: Mapping[str, int | None]
    """``bos``, ``eos``, ``pad``, ``unk`` → id."""
    pipeline: str = field(repr=False)
    """Canonical JSON of normalizer, pre-tokenizer, post-processor and decoder."""
    chat_template: str | None = field(repr=False)


@dataclass(frozen=True)
class ModelFacts:
    """A model folder, read without any deep-learning library."""

    folder: Path
    architecture: str
    vocab_size: int
    """Rows of the output head; may be padded beyond the tokenizer."""
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_position: int
    """Longest context that the model was made for, tokens."""
    parameters: int
    eos_ids: tuple[int, ...]
    """Ids that end a generation (generation config, else config)."""
    tokenizer: TokenizerFacts
    files: Mapping[str, str] = field(repr=False)
    """Every file that a build depends on → sha256."""
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """config.json as it is."""
    tensors: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    """Every stored weight → its shape."""


@dataclass(frozen=True)
class Finding:
    """What one rule of ``check`` found: a stable id, how bad, what, where, what to do."""

    rule: str
    severity: Severity
    what: str
    where: str | None = None
    fix: str | None = None


@dataclass(frozen=True)
class Pair:
    """A target and a draft that passed every check."""

    target: ModelFacts
    draft: ModelFacts
    findings: tuple[Finding, ...] = ()
    """Warnings and notes that do not stop a build."""
