"""The draft-verify-accept loop. It knows no library: engines are a narrow protocol."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specbuild.runtime.blocks import Cache

Tokens = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Feed:
    """What one sequence puts into a pass."""

    cache: Cache
    tokens: Tokens
    """int64 [n]: the tokens that follow what the cache holds."""
    rows: int
    """How many of the last positions need logits; 0 while a long prompt is still being read."""
