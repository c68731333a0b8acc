"""The charts of the HTML page, each one SVG element."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specbuild.plan import Interval, Measured, Plan
from specbuild.report.compare import METRICS
from specbuild.report.layout import number
from specbuild.report.steps import StepGrid
from specbuild.report.svg import WIDTH, Scale, bar, dot, figure, line, path, text, ticks

LEFT, RIGHT, TOP = 34.0, WIDTH - 12.0, 12.0
PERCENTILES = ("p50", "p90", "p95", "p99")
COLOURS = 6
"""Colours of the style sheet, ``c0`` (off) to ``c6``; a seventh budget begins again at ``c1``."""


def colour(index: int) -> str:
    """The class of the budget at ``index``."""
    return f"c{index % COLOURS + 1}"


def speedup(plan: Plan) -> str:
    """Speedup over off by draft_len: predicted, and measured with 95% intervals where a length was replayed."""
    predicted = [(candidate.draft_len, candidate.speedup) for candidate in plan.candidates]
    measured = _measured_speedups(plan)
    heights = [1.0, *(value for _, value in predicted), *(v for _, gain, _ in measured for v in (gain.low, gain.high))]
    lengths = [length for length, _ in predicted] + [length for length, _, _ in measured]
    margin = 0.08 * (max(heights) - min(heights) or 1)
    y = Scale(min(heights) - margin, max(heights) + margin, 220, TOP)
    x = Scale(min(lengths, default=0), max(lengths, default=1), LEFT + 12, RIGHT - 12)
    marks: list[str] = []
    for length, gain, kind in measured:
        beside = [other for other in measured if other[0] == length]
        step = min(9, 36 / len(beside))
        place = x(length) + (beside.index((length, gain, kind)) - (len(beside) - 1) / 2) * step
        marks += _interval(place, [y(value) for value in (gain.low, gain.value, gain.high)], kind)
    return figure(
        "Speedup over off by draft_len: predicted line, measured points",
        260,
        *_y_axis(y, "×"),
        line(LEFT, y(1), RIGHT, y(1), "one"),
        *_x_axis(x, sorted(set(lengths)), "draft_len"),
        path([(x(length), y(value)) for length, value in predicted], "predicted"),
        *(dot(x(length), y(value), 2.5, "predicted") for length, value in predicted),
        *marks,
    )


def _measured_speedups(plan: Plan) -> list[tuple[int, Interval, str]]:
    """draft_len, interval and class of what the budgets chose, then of what was replayed and not chosen."""
    chosen = [
        (choice.policy.max_draft_len, choice.speedup_over_off, colour(index))
        for index, choice in enumerate(plan.choices.values())
        if not choice.policy.is_off
    ]
    lengths = {length for length, _, _ in chosen}
    others = [(one.draft_len, one.replayed, "c0") for one in plan.candidates if one.replayed]
    return chosen + [(length, gain, kind) for length, gain, kind in others if length and length not in lengths]


def _interval(x: float, heights: Sequence[float], kind: str) -> list[str]:
    low, value, high = heights
    whiskers = [line(x - 3, end, x + 3, end, kind) for end in (low, high)]
    return [line(x, low, x, high, kind), *whiskers, dot(x, value, 4, kind)]


def acceptance(series: Sequence[tuple[str, Measured]]) -> str:
    """Share accepted at each position of the draft, one bar a policy that speculates; names and colours by place."""
    drafted = [(kind, measured.acceptance_per_position) for kind, measured in series]
    longest = max((len(shares) for _, shares in drafted), default=0)
    y = Scale(0, 1, 220, TOP)
    slot = (RIGHT - LEFT) / max(longest, 1)
    wide = min(slot * 0.8 / max(len(drafted), 1), 26)
    bars = [
        bar(LEFT + slot * (place + 0.5) + (index - len(drafted) / 2) * wide, y(share), wide - 1, y(0) - y(share), kind)
        for index, (kind, shares) in enumerate(drafted)
        for place, share in enumerate(shares)
    ]
    if len(drafted) == 1 and slot >= 24:
        bars += [
            text(LEFT + slot * (place + 0.5), y(share) - 3, f"{share:.2f}"[1:] if share < 1 else "1", anchor="middle")
            for place, share in enumerate(drafted[0][1])
        ]
    centre = Scale(1, max(longest, 2), LEFT + slot / 2, LEFT + slot * (max(longest, 2) - 0.5))
    label = "Acceptance by position of the draft"
    return figure(label, 260, *_y_axis(y, ""), *bars, *_x_axis(centre, range(1, longest + 1), "position in the draft"))


def latency(metric: str, series: Sequence[tuple[str, Measured]], limits: Sequence[tuple[str, str, float]]) -> str:
    """Quantiles of one metric: a bar for off and each budget, in groups, with a mark where a budget has its limit.

    ``series``: class and figures; ``limits``: class, quantile and ms.
    """
    groups = {
        name: [(kind, measured.quantiles_ms[name]) for kind, measured in series if name in measured.quantiles_ms]
        for name in (f"{metric}_{percentile}" for percentile in PERCENTILES)
    }
    asked = [(kind, name, ms) for kind, name, ms in limits if groups.get(name)]
    longest = max([ms for group in groups.values() for _, ms in group] + [ms for _, _, ms in asked], default=1.0)
    x = Scale(0, longest, LEFT, RIGHT - 44)
    parts: list[str] = []
    y = TOP
    for name, group in groups.items():
        if not group:
            continue
        begun = y
        for kind, ms in group:
            parts += [bar(LEFT, y, x(ms) - LEFT, 12, kind), text(x(ms) + 4, y + 10, number(ms))]
            y += 15
        parts.append(text(LEFT - 6, (begun + y) / 2 + 2, name.removeprefix(f"{metric}_"), anchor="end"))
        for kind, _, ms in (limit for limit in asked if limit[1] == name):
            parts += [
                line(x(ms), begun - 3, x(ms), y, f"limit {kind}"),
                text(x(ms), y + 9, f"≤ {ms:g}", anchor="middle"),
            ]
        y += 16
    return figure(f"{METRICS[metric]} quantiles in ms", y, *parts)


def steps(grid: StepGrid) -> str:
    """Time of a round by draft_len with the range of its middle half, one line for each number of requests at once."""
    most = max(ms * (1 + wide / 2) for row, each in _rows(grid) for ms, wide in zip(row, each, strict=True))
    y = Scale(0, most * 1.05, 220, TOP)
    x = Scale(min(grid.draft_lens), max(grid.draft_lens), LEFT + 12, RIGHT - 60)
    parts: list[str] = []
    for batch, (row, each) in zip(grid.batch_sizes, _rows(grid), strict=True):
        points = [(x(length), y(ms)) for length, ms in zip(grid.draft_lens, row, strict=True)]
        for (across, _), ms, wide in zip(points, row, each, strict=True):
            parts.append(line(across, y(ms * (1 - wide / 2)), across, y(ms * (1 + wide / 2)), "round"))
        parts += [path(points, "round"), *(dot(*point, 2.5, "round") for point in points)]
        parts.append(text(points[-1][0] + 6, points[-1][1] + 4, f"{batch} at once"))
    return figure("Round time by draft_len", 260, *_y_axis(y, ""), *parts, *_x_axis(x, grid.draft_lens, "draft_len"))


def _rows(grid: StepGrid) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    return [*zip(grid.median_ms, grid.spread, strict=True)]


def _y_axis(y: Scale, unit: str) -> list[str]:
    shown = ticks(y.low, y.high)
    decimals = max(0, math.ceil(-math.log10(shown[1] - shown[0]) - 1e-6)) if len(shown) > 1 else 0
    parts: list[str] = []
    for value in shown:
        parts.append(line(LEFT, y(value), RIGHT, y(value), "grid"))
        parts.append(text(LEFT - 5, y(value) + 4, f"{value:.{decimals}f}{unit}", anchor="end"))
    return parts


def _x_axis(x: Scale, values: Sequence[int], title: str) -> list[str]:
    room = max(1, -(-len(values) // 12))
    labels = [text(x(value), 236, str(value), anchor="middle") for value in values[::room]]
    return [*labels, text(RIGHT, 254, title, anchor="end", kind="title")]
