"""What tune and bench run on: engines opened for real, or stand-ins where a test wants its own time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specbuild.engine import Engines
from specbuild.plan import Graph
from specbuild.profile import Numerics, Profile
from specbuild.runtime.evidence import Scorer
from specbuild.runtime.open import SessionSpec, open_session
from specbuild.runtime.replay import REAL_CLOCK, Clock
from specbuild.runtime.session import Session
from specbuild.runtime.tokenizer import Encoder


def session_spec(profile: Profile, engines: Engines, graph: Graph, *, speculative: bool = True) -> SessionSpec:
    """The session that a profile asks for."""
    limits = profile.limits
    return SessionSpec.from_folders(
        engines.target.folder,
        engines.draft.folder,
        graph=graph,
        numerics=profile.numerics,
        max_batch_size=limits.max_batch_size,
        max_seq_len=limits.max_seq_len,
        max_draft_len=limits.max_draft_len,
        kv_cache_gib=limits.kv_cache_gib,
        speculative=speculative,
    )


def open_scorer(folder: Path, numerics: Numerics, tokens: int) -> Scorer:
    """An engine that reads known sequences of up to ``tokens`` tokens."""
    from specbuild.runtime.openvino import CacheLimits, OpenVinoEngine

    return OpenVinoEngine(folder, numerics=numerics, cache=CacheLimits(tokens))


def open_tokenizer(folder: Path) -> Encoder:
    """The tokenizer that was compiled with the engine."""
    from specbuild.runtime.tokenizer import Tokenizer

    return Tokenizer(folder)


@dataclass(frozen=True)
class Tools:
    """How sessions, scorers and tokenizers are opened, and which clock runs."""

    session: Callable[[SessionSpec], Session] = open_session
    scorer: Callable[[Path, Numerics, int], Scorer] = open_scorer
    tokenizer: Callable[[Path], Encoder] = open_tokenizer
    clock: Clock = REAL_CLOCK


REAL_TOOLS = Tools()
