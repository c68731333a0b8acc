"""Draft length per round: a policy's data, executed. NumPy-free, so that it runs anywhere a plan is served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Situation:
    """What a policy sees when a round begins."""

    prompt_len: int
    """Tokens."""
    output_len: int
    """Tokens produced so far."""
    running: int
    """Requests that are being decoded, this one included."""


class Policy(Protocol):
    """Decides how many tokens the draft proposes; 0 is off."""

    def draft_len(self, situation: Situation) -> int:
        """The length for the round that begins."""


@dataclass(frozen=True)
class Banded:
    """Draft length by prompt length: ``limits[i]`` is the longest prompt of band i, the last band takes the rest."""

    limits: tuple[int, ...]
    lengths: tuple[int, ...]

    def draft_len(self, situation: Situation) -> int:
        """The length of the first band that the prompt fits."""
        for limit, length in zip(self.limits, self.lengths, strict=False):
            if situation.prompt_len <= limit:
                return length
        return self.lengths[-1]


def fixed(draft_len: int) -> Banded:
    """The same length for every round; 0 is off."""
    return Banded((), (draft_len,))


OFF = fixed(0)


def from_bands(bands: Sequence[Mapping[str, Any]]) -> Banded:
    """A policy from the ``bands`` of a plan's JSON (``max_prompt_len``, ``draft_len``)."""
    return Banded(
        tuple(int(band["max_prompt_len"]) for band in bands if band["max_prompt_len"] is not None),
        tuple(int(band["draft_len"]) for band in bands),
    )
