"""The few SVG shapes that the charts are made of; colours and fonts are the page's style sheet's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Literal

WIDTH = 420
"""Width of a chart in its own units: about a phone's, so that text stays readable there."""


@dataclass(frozen=True)
class Scale:
    """Maps ``low``..``high`` to ``start``..``end`` along a line."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where ``value`` lies."""
        span = self.high - self.low or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Round values from ``low`` to ``high``, about so many: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def figure(label: str, height: float, *parts: str) -> str:
    """A chart; ``label`` is what a screen reader says."""
    body = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">{body}</svg>'


def text(x: float, y: float, words: str, *, anchor: Literal["start", "middle", "end"] = "start", kind: str = "") -> str:
    """A line of text with its baseline at y."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def bar(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A filled rectangle."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" class="{kind}"/>'


def dot(x: float, y: float, radius: float, kind: str) -> str:
    """A filled circle."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}"/>'


def path(points: list[tuple[float, float]], kind: str) -> str:
    """Straight lines through the points."""
    return f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" class="{kind}"/>'
