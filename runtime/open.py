"""From engine folders to a running session."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specbuild.errors import ToolchainError
from specbuild.runtime.session import Session

Graph = Literal["fused", "orchestrated"]
Numerics = Literal["exact", "fast"]


@dataclass(frozen=True)
class SessionSpec:
    """What a session is made of: two engine folders, the graph, the numerics and the limits."""

    target: Path
    draft: Path | None
    """None: the target alone; every policy is then off."""
    graph: Graph = "fused"
    numerics: Numerics = "fast"
    max_batch_size: int = 8
    """Requests decoded at once; the rest queue."""
    max_seq_len: int = 2048
    """Prompt and output tokens of one request."""
    max_draft_len: int = 8
    kv_cache_gib: int = 1
    """KV cache pool of each model, whole GiB."""
    speculative: bool = True
    """False: no request will draft (a baseline); the draft is not loaded."""
    eos_ids: tuple[int, ...] = ()
    """Tokens that end an output."""

    @classmethod
    def from_folders(cls, target: Path, draft: Path | None, **settings: Any) -> SessionSpec:
        """A spec whose ``eos_ids`` come from the target's generation config unless they are given."""
        settings.setdefault("eos_ids", read_eos_ids(target))
        return cls(target=target, draft=draft, **settings)

    @property
    def drafts(self) -> bool:
        """Whether the session can speculate at all."""
        return self.speculative and self.draft is not None


def open_session(spec: SessionSpec) -> Session:
    """Load the engines and start the session's worker.

    Raises ToolchainError where a folder holds no engine or the engine library is not installed.
    """
    if spec.graph == "fused":
        from specbuild.runtime.fused import FusedSession

        return FusedSession(spec)
    from specbuild.runtime.orchestrated import OrchestratedSession

    return OrchestratedSession.open(spec)


def read_eos_ids(folder: Path) -> tuple[int, ...]:
    """The ``eos_token_id`` of a model folder: ``generation_config.json`` first, then ``config.json``; () if none."""
    for name in ("generation_config.json", "config.json"):
        try:
            config = json.loads((folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise ToolchainError(f"cannot read: {error}", where=str(folder / name)) from error
        value = config.get("eos_token_id")
        if value is not None:
            return (int(value),) if isinstance(value, int) else tuple(int(item) for item in value)
    return ()
