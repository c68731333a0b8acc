"""What a session reads from the configs in an engine's folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbuild.errors import ToolchainError


@dataclass(frozen=True)
class ModelConfig:
    """Facts of ``config.json`` and ``generation_config.json``."""

    vocab_size: int
    max_position: int
    """Longest context, tokens."""
    kv_values: int
    """Numbers that one token leaves in the KV cache: 2 x layers x KV heads x head dimension."""
    eos_ids: tuple[int, ...]
    """Tokens that end an output; () if none is named."""

    @classmethod
    def read(cls, folder: Path) -> ModelConfig:
        """The configs of an engine folder; ``generation_config.json`` wins for eos.

        Raises ToolchainError where they cannot be read.
        """
        try:
            config = _load(folder / "config.json")
            text = config.get("text_config", config)
            generation = folder / "generation_config.json"
            eos = (_load(generation) if generation.is_file() else {}).get("eos_token_id", text.get("eos_token_id"))
            return cls(int(text["vocab_size"]), int(text["max_position_embeddings"]), _kv_values(text), _ids(eos))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ToolchainError(
                f"cannot read the model's configs: {error}", where=str(folder), fix="run specbuild compile"
            ) from error


def _load(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def _kv_values(config: dict[str, Any]) -> int:
    heads = int(config["num_attention_heads"])
    head_dim = config.get("head_dim") or int(config["hidden_size"]) // heads
    return 2 * int(config["num_hidden_layers"]) * int(config.get("num_key_value_heads") or heads) * int(head_dim)


def _ids(value: int | list[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)
