from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
import sample_plan as sample
from hypothesis import given
from hypothesis import strategies as st

from specbuild.plan import Interval, Plan
from specbuild.report import charts
from specbuild.report.steps import StepGrid
from specbuild.report.svg import WIDTH, Scale, ticks


def parse(svg: str) -> ET.Element:
    """The chart as XML; every coordinate must be finite and inside."""
    root = ET.fromstring(svg)  # noqa: S314 - made here
    height = float(root.attrib["viewBox"].split()[3])
    for element in root.iter():
        for name, value in element.attrib.items():
            if name in ("x", "x1", "x2", "cx", "y", "y1", "y2", "cy"):
                assert -0.1 <= float(value) <= (WIDTH if "x" in name else height) + 0.1, (element.tag, name, value)
        if element.tag == "rect":
            assert float(element.attrib["x"]) + float(element.attrib["width"]) <= WIDTH
    return root


def words(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter("text")]


@given(st.floats(-1e3, 1e3), st.floats(1e-2, 1e4))
def test_ticks_are_round_and_inside(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert 1 <= len(found) <= 6
    assert all(low - span * 1e-6 <= tick <= low + span * (1 + 1e-6) for tick in found)
    for before, after in pairwise(found):
        digit = (after - before) / 10 ** math.floor(math.log10(after - before) + 1e-6)
        assert min(abs(digit - nice) for nice in (1, 2, 5)) < 1e-3


def test_a_scale_without_a_span_stays_finite() -> None:
    assert Scale(1, 1, 0, 10)(1) == 0
    assert ticks(1, 1) == [1]


def test_speedup_shows_prediction_and_measured_intervals() -> None:
    root = parse(charts.speedup(sample.plan()))
    kinds = [element.attrib["class"] for element in root.iter("circle")]
    assert kinds.count("predicted") == 9
    assert [kind for kind in kinds if kind != "predicted"] == ["c1", "c3", "c0"]
    whiskers = [e for e in root.iter("line") if e.attrib["class"] == "c1"]
    (stem,) = [e for e in whiskers if e.attrib["x1"] == e.attrib["x2"]]
    point = next(e for e in root.iter("circle") if e.attrib["class"] == "c1")
    assert len(whiskers) == 3
    assert float(stem.attrib["y1"]) > float(point.attrib["cy"]) > float(stem.attrib["y2"])
    assert {"0", "8", "draft_len", "1.0×", "2.5×"} <= {*words(root)}


@pytest.mark.parametrize(
    "plan",
    [
        sample.plan(candidates=(), choices={}),
        sample.plan(candidates=()),
        sample.only("batch"),
        sample.plan(candidates=sample.candidates(0.0)),
    ],
)
def test_speedup_of_poor_plans(plan: Plan) -> None:
    assert "draft_len" in words(parse(charts.speedup(plan)))


def test_an_interval_lies_within_the_chart_however_wide() -> None:
    choice = sample.choices()["interactive"].model_copy(update={"speedup_over_off": Interval(value=2, low=0.1, high=9)})
    parse(charts.speedup(sample.plan(choices={"interactive": choice})))


def test_acceptance_has_a_bar_a_position_and_policy() -> None:
    one = [("c1", sample.measured(5))]
    root = parse(charts.acceptance(one))
    heights = [float(bar.attrib["height"]) for bar in root.iter("rect")]
    assert len(heights) == 5
    assert heights == sorted(heights, reverse=True)
    assert ".84" in words(root)
    two = parse(charts.acceptance([*one, ("c2", sample.measured(8))]))
    assert len([*two.iter("rect")]) == 13
    parse(charts.acceptance([("c1", sample.measured(1))]))
    parse(charts.acceptance([("c1", sample.measured(32))]))


def test_latency_has_a_bar_a_quantile_and_a_mark_a_limit() -> None:
    series = [("c0", sample.measured()), ("c1", sample.measured(5, scale=0.4))]
    root = parse(charts.latency("tpot", series, [("c1", "tpot_p95", 40.0), ("c1", "ttft_p50", 500.0)]))
    assert len([*root.iter("rect")]) == 4
    assert {"p50", "p95", "24.1", "≤ 40"} <= {*words(root)}
    assert "≤ 500" not in words(root)
    assert not {"p90", "p99"} & {*words(root)}


def test_round_times_have_a_line_a_batch_size() -> None:
    grid = StepGrid.model_validate(sample.step_times()["graphs"]["orchestrated"])
    root = parse(charts.steps(grid))
    assert len([*root.iter("polyline")]) == 2
    assert {"1 at once", "4 at once"} <= {*words(root)}


def test_words_are_escaped() -> None:
    assert not re.search(r"<b>|&(?!amp;|lt;|gt;|quot;|#)", charts.figure("<b>&", 10, charts.text(0, 5, "<b>&")))
