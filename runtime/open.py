"""From engine folders to a running session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specbuild.errors import ToolchainError
from specbuild.runtime.modelconfig import ModelConfig
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
    preload_alone: bool = True
    """Fused: load the pipeline for requests that do not draft (off, sampled) at once and not when one comes."""

    @classmethod
    def from_folders(cls, target: Path, draft: Path | None, **settings: Any) -> SessionSpec:
        """A spec whose ``eos_ids`` come from the target's generation config unless they are given."""
        settings.setdefault("eos_ids", ModelConfig.read(target).eos_ids)
        return cls(target=target, draft=draft, **settings)

    @property
    def drafter(self) -> Path | None:
        """The draft's folder if the session can speculate at all."""
        return self.draft if self.speculative else None


def open_session(spec: SessionSpec) -> Session:
    """Load the engines and start the session's worker.

    Raises ToolchainError where a folder holds no engine or the engine library is not installed.
    """
    try:
        if spec.graph == "fused":
            from specbuild.runtime.fused import FusedSession

            return FusedSession(spec)
        from specbuild.runtime.orchestrated import OrchestratedSession

        return OrchestratedSession.open(spec)
    except ModuleNotFoundError as error:
        raise ToolchainError(
            f"{error.name} is not installed", fix="install the CPU stack: pip install 'specbuild[openvino]'"
        ) from error
