"""Plain text in columns, never wider than it was told."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 100
"""Columns of a terminal page."""
GAP = "  "
_BARS = "▁▂▃▄▅▆▇█"


def printable(text: str) -> str:
    """``text`` without control characters: what a file holds must not steer the terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def number(value: float) -> str:
    """Three significant digits or the whole number: ``2.31``, ``41.2``, ``1830``."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def bars(shares: Sequence[float]) -> str:
    """One block character a share; a share of 1 is a full block."""
    return "".join(_BARS[min(int(max(share, 0.0) * len(_BARS)), len(_BARS) - 1)] for share in shares)


def paragraph(text: str, *, first: str = "  ", rest: str = "    ", width: int = WIDTH) -> list[str]:
    """``text`` wrapped to ``width``, the first line behind ``first`` and the others behind ``rest``."""
    wrapper = textwrap.TextWrapper(width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return wrapper.wrap(printable(text))


def facts(pairs: Sequence[tuple[str, str]], *, width: int = WIDTH) -> list[str]:
    """Names and values in two columns; long values wrap below themselves."""
    wide = max((len(name) for name, _ in pairs), default=0)
    lines: list[str] = []
    for name, value in pairs:
        label = f"  {printable(name):<{wide}}{GAP}"
        lines += paragraph(value or "–", first=label, rest=" " * len(label), width=width)
    return lines


def grid(rows: Sequence[Sequence[str]], *, pinned: int = 1, right: bool = False, width: int = WIDTH) -> list[str]:
    """Rows of equal length as columns; the first ``pinned`` columns label the rows.

    Columns that do not fit go to a further block behind the same labels. A cell may hold several lines; one wider
    than a block is wrapped. ``right`` aligns every column but the labels to the right.
    """
    if not rows:
        return []
    columns = [[_cell(cell, width // 2) for cell in column] for column in zip(*rows, strict=True)]
    labels, others = columns[:pinned], columns[pinned:]
    room = width - sum(_wide(column) + len(GAP) for column in labels)
    lines: list[str] = []
    for block in _blocks(others, room):
        lines += [""] if lines else []
        lines += _lines(labels, block, right)
    return lines


def _cell(text: str, room: int) -> list[str]:
    return [part for line in text.split("\n") for part in textwrap.wrap(printable(line), room)] or [""]


def _wide(column: list[list[str]]) -> int:
    return max(len(line) for cell in column for line in cell)


def _blocks(columns: list[list[list[str]]], room: int) -> list[list[list[list[str]]]]:
    blocks: list[list[list[list[str]]]] = [[]]
    left = room
    for column in columns:
        need = _wide(column) + len(GAP)
        if blocks[-1] and need > left:
            blocks.append([])
            left = room
        blocks[-1].append(column)
        left -= need
    return blocks


def _lines(labels: list[list[list[str]]], block: list[list[list[str]]], right: bool) -> list[str]:
    columns = [*labels, *block]
    widths = [_wide(column) for column in columns]
    aligns = ["<"] * len(labels) + [">" if right else "<"] * len(block)
    lines: list[str] = []
    for cells in zip(*columns, strict=True):
        for line in range(max(len(cell) for cell in cells)):
            texts = [cell[line] if line < len(cell) else "" for cell in cells]
            parts = [f"{text:{align}{wide}}" for text, align, wide in zip(texts, aligns, widths, strict=True)]
            lines.append((GAP + GAP.join(parts)).rstrip())
    return lines
