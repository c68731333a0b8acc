"""Evidence in a table: how often the draft agrees, by prompt length and by place in the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specbuild.record import Record

if TYPE_CHECKING:
    from specbuild.evidence import Evidence

PROMPT_EDGES = (20, 50, 200, 1000)
"""Prompt tokens at which a band begins; the first band begins at 0."""
OUTPUT_EDGES = (8, 32, 128)
"""Output tokens at which a band begins; the first begins at 1: token 0 comes with the prompt and is never drafted."""


class Cell(Record):
    """Output tokens of one prompt band and one output band."""

    prompt: str
    output: str
    tokens: int
    share: float
    """Mean probability that the draft proposes the token: the argmax agrees (greedy), min(1, q/p) (sampled)."""


def cells(evidence: Evidence) -> tuple[Cell, ...]:
    """Every pair of bands that holds tokens, by prompt band, then output band."""
    import numpy as np

    lengths = np.diff(evidence.offsets)
    greedy = np.repeat(evidence.temperature == 0, lengths)
    stands = np.where(greedy, evidence.agree, evidence.accept)
    place = np.arange(len(stands)) - np.repeat(evidence.offsets[:-1], lengths)
    prompt_band = np.repeat(np.digitize(evidence.prompt_len, PROMPT_EDGES), lengths)
    output_band = np.digitize(place, OUTPUT_EDGES)
    found: list[Cell] = []
    for row, prompt in enumerate(_names(0, PROMPT_EDGES)):
        for column, output in enumerate(_names(1, OUTPUT_EDGES)):
            inside = (prompt_band == row) & (output_band == column) & (place > 0)
            if inside.any():
                share = float(stands[inside].mean())
                found.append(Cell(prompt=prompt, output=output, tokens=int(inside.sum()), share=share))
    return tuple(found)


def outputs(found: tuple[Cell, ...]) -> list[str]:
    """The output bands that hold tokens, in order."""
    return [name for name in _names(1, OUTPUT_EDGES) if any(cell.output == name for cell in found)]


def rows(found: tuple[Cell, ...]) -> dict[str, list[Cell | None]]:
    """Prompt band → one cell an output band, None where there is no token."""
    by_bands = {(cell.prompt, cell.output): cell for cell in found}
    prompts = dict.fromkeys(cell.prompt for cell in found)
    return {prompt: [by_bands.get((prompt, output)) for output in outputs(found)] for prompt in prompts}


def _names(first: int, edges: tuple[int, ...]) -> list[str]:
    begins = (first, *edges)
    return [f"{begin}–{end - 1}" for begin, end in zip(begins, edges, strict=False)] + [f"≥ {edges[-1]}"]
