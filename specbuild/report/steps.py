"""Step times as the report reads them: round medians over draft length and requests at once."""

from __future__ import annotations

from pydantic import ConfigDict, model_validator
from typing_extensions import Self

from specbuild.record import Record


class StepGrid(Record):
    """Round times of one graph."""

    model_config = ConfigDict(extra="ignore")

    batch_sizes: tuple[int, ...]
    """Requests at once."""
    draft_lens: tuple[int, ...]
    """0 is the target alone."""
    median_ms: tuple[tuple[float, ...], ...]
    """[batch size][draft_len]."""
    spread: tuple[tuple[float, ...], ...]
    """[batch size][draft_len]: interquartile range over median."""

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        shape = [len(self.draft_lens)] * len(self.batch_sizes)
        if not shape or not shape[0] or any([*map(len, rows)] != shape for rows in (self.median_ms, self.spread)):
            raise ValueError("median_ms and spread have a row a batch size and a value a draft_len")
        return self


class StepFile(Record):
    """What is shown of ``steptimes.json``; its writer keeps more."""

    model_config = ConfigDict(extra="ignore")

    pair_digest: str
    numerics: str
    graphs: dict[str, StepGrid]
