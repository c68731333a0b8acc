"""The report as one self-contained HTML page: no script runs, nothing is fetched, and the data is inside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as e
from importlib.resources import files

import specbuild
from specbuild.measurement import Measurement
from specbuild.plan import Choice, Measured, Plan
from specbuild.report import Report, charts
from specbuild.report.agreement import Cell, outputs, rows
from specbuild.report.charts import colour
from specbuild.report.compare import (
    METRICS,
    baseline_facts,
    comparison,
    interval_words,
    measured_on,
    policy_words,
    prediction,
    replays,
    shown_metrics,
)
from specbuild.report.layout import number

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Content security policy: a browser refuses whatever the page does not carry itself."""
LESS = "\\u003c"
"""``<`` in JSON, so that no text can end the element that holds the data."""


def page(report: Report) -> str:
    """The whole page."""
    plan, baseline = report.plan, report.baseline
    source = next(one for one in (plan, baseline, *report.replays) if one)
    body = [
        f"<header><h1>{e(report.title)}</h1>",
        f'<p class="soft">{e(_subtitle(source))}</p></header>',
        *(f'<p class="caution">{e(caution)}</p>' for caution in report.cautions),
        *(_plan(plan) if plan else []),
        *_evidence(report),
        *(_baseline(baseline) if baseline else []),
        *(_replays(report.replays) if report.replays else []),
        *(_measured_on(source)),
        f"<footer>specbuild {e(specbuild.__version__)}. The data of this page is inside it, as JSON.</footer>",
        f'<script type="application/json" id="report">{report.to_json().replace("<", LESS)}</script>',
    ]
    return _document(f"{report.title}: specbuild report", "\n".join(body))


def _document(title: str, body: str) -> str:
    style = files("specbuild.report").joinpath("page.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{e(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _subtitle(source: Plan | Measurement) -> str:
    return f"{source.numerics} numerics · {source.graph} graph · arrivals {source.arrivals} · {source.created}"


def _plan(plan: Plan) -> list[str]:
    notes = [*plan.graphs_compared, *plan.notes]
    return [
        '<section class="cards">',
        *(_card(plan, name, colour(index)) for index, name in enumerate(plan.choices)),
        "</section>",
        *([f"<ul>{''.join(f'<li>{e(note)}</li>' for note in notes)}</ul>"] if notes else []),
        "<h2>Off against the plan, measured on held-out requests</h2>",
        _table(comparison(plan)),
        _charts(plan),
        "<h2>Predicted from evidence and step times; measured where it was replayed</h2>",
        _table(prediction(plan), kind="numbers"),
    ]


def _card(plan: Plan, name: str, kind: str) -> str:
    choice = plan.choices[name]
    asked = plan.budgets.get(name, "")
    limits = {} if isinstance(asked, str) else asked
    words = ", ".join(f"{key.removesuffix('_ms')} ≤ {ms:g} ms" for key, ms in limits.items()) or str(asked)
    verdict = '<span class="met">met</span>' if choice.meets_budget else '<span class="missed">NOT met</span>'
    return f"""<div class="card {kind}">
<h3>{e(name)} <span class="soft">{e(words)}</span> {verdict}</h3>
<p class="policy">{e(policy_words(choice))}</p>
<p>{e(_gain(plan.off, choice))}</p>
<ul>{"".join(f"<li>{e(reason)}</li>" for reason in choice.reasons)}</ul>
</div>
"""


def _gain(off: Measured, choice: Choice) -> str:
    speed, alone = (number(measured.output_tokens_per_s) for measured in (choice.measured, off))
    if choice.policy.is_off:
        return f"{speed} tokens/s with the target alone; no draft length beats it beyond doubt"
    return f"{interval_words(choice.speedup_over_off)} over off (95%) · {speed} tokens/s against {alone}"


def _charts(plan: Plan) -> str:
    series = [("c0", plan.off), *((colour(index), c.measured) for index, c in enumerate(plan.choices.values()))]
    drafting = [
        (colour(index), choice.measured)
        for index, choice in enumerate(plan.choices.values())
        if choice.measured.acceptance_per_position
    ]
    note = "dashed: predicted; points: measured with 95% interval, grey where not chosen"
    shown = [_figure("Speedup over off", note, charts.speedup(plan))]
    if drafting:
        note = "of the rounds that drafted so far, the share that accepted"
        shown.append(_figure("Acceptance by position", note, charts.acceptance(drafting)))
    note = "quantiles that the sample supports"
    shown += [
        _figure(f"{METRICS[metric]}, ms", note, charts.latency(metric, series, _limits(plan)))
        for metric in shown_metrics(plan)
    ]
    return f'<h2>In pictures</h2>{_key(["off", *plan.choices])}<div class="charts">{"".join(shown)}</div>'


def _limits(plan: Plan) -> list[tuple[str, str, float]]:
    """Class, quantile and ms of every limit of every budget."""
    return [
        (colour(index), key.removesuffix("_ms"), ms)
        for index, asked in enumerate(plan.budgets.get(name, "") for name in plan.choices)
        if not isinstance(asked, str)
        for key, ms in asked.items()
    ]


def _key(names: Sequence[str]) -> str:
    kinds = ["c0", *(colour(index) for index in range(len(names) - 1))]
    items = [f"<li class={kind}>{e(name)}</li>" for kind, name in zip(kinds, names, strict=True)]
    return f'<ul class="key">{"".join(items)}</ul>'


def _evidence(report: Report) -> list[str]:
    times = [
        _figure(f"Time of a round, ms: {graph} graph", "median, and the range of its middle half", charts.steps(grid))
        for graph, grid in report.step_times.items()
    ]
    return [
        *(["<h2>Evidence</h2>", _agreement(report.agreement)] if report.agreement else []),
        *(["<h2>Step times</h2>", f'<div class="charts">{"".join(times)}</div>'] if times else []),
    ]


def _agreement(found: tuple[Cell, ...]) -> str:
    heads = "".join(f"<th>output {e(name)}</th>" for name in outputs(found))
    body = "".join(
        f"<tr><th>prompt {e(prompt)}</th>{''.join(_heat(cell) for cell in cells)}</tr>"
        for prompt, cells in rows(found).items()
    )
    return (
        "<p>Share of the target's own output tokens that the draft proposes, by length in tokens.</p>"
        f'<div class="wide"><table class="heat"><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _heat(cell: Cell | None) -> str:
    if cell is None:
        return "<td></td>"
    return f'<td style="--share:{cell.share:.3f}">{cell.share:.2f}<small>{cell.tokens} tokens</small></td>'


def _baseline(baseline: Measurement) -> list[str]:
    partial = ' <span class="missed">interrupted: partial</span>' if baseline.interrupted else ""
    where = f"{baseline.graph} graph, arrivals {baseline.arrivals}, {baseline.created}"
    return [
        f"<h2>Baseline: the target alone{partial}</h2>",
        f'<p class="soft">{e(where)}</p>',
        _facts(baseline_facts(baseline)),
    ]


def _replays(measurements: Sequence[Measurement]) -> list[str]:
    return ["<h2>Every replay, latencies at p50/p95/p99</h2>", _table(replays(measurements))]


def _measured_on(source: Plan | Measurement) -> list[str]:
    named = measured_on(source) if isinstance(source, Plan) else [*source.environment.items()]
    return ["<h2>Measured on</h2>", _facts(named)]


def _figure(title: str, note: str, chart: str) -> str:
    return f'<figure><figcaption>{e(title)}<span class="soft">{e(note)}</span></figcaption>{chart}</figure>'


def _facts(named: Iterable[tuple[str, str]]) -> str:
    body = "".join(f"<tr><th>{e(name)}</th><td>{e(value)}</td></tr>" for name, value in named)
    return f'<div class="wide"><table class="facts"><tbody>{body}</tbody></table></div>'


def _table(cells: Sequence[Sequence[str]], *, kind: str = "") -> str:
    heads = "".join(f"<th>{e(cell)}</th>" for cell in cells[0])
    body = "".join(
        f"<tr><th>{e(row[0])}</th>{''.join(f'<td>{e(cell)}</td>' for cell in row[1:])}</tr>" for row in cells[1:]
    )
    return f'<div class="wide"><table class="{kind}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
