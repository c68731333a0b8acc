"""The report as plain text: off and every budget's policy side by side, the prediction, the reasons, the baseline."""

from __future__ import annotations

from specbuild.measurement import Measurement
from specbuild.plan import Plan
from specbuild.report import Report
from specbuild.report.agreement import Cell, outputs, rows
from specbuild.report.compare import baseline_facts, comparison, measured_on, prediction, replays
from specbuild.report.layout import facts, grid, paragraph


def page(report: Report) -> str:
    """The whole report as plain text of at most 100 columns."""
    parts = [
        "\n".join(line for caution in report.cautions for line in paragraph(caution, first="! ", rest="  ")),
        plan_table(report.plan) if report.plan else "",
        "\n".join(baseline_lines(report.baseline)) if report.baseline else "",
        "\n".join(["Every replay, latencies at p50/p95/p99", *grid(replays(report.replays))]) if report.replays else "",
        "\n".join(agreement_lines(report.agreement)) if report.agreement else "",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def plan_table(plan: Plan) -> str:
    """The plan as plain text of at most 100 columns, ending with what it was measured on."""
    title = f"{plan.profile}: {plan.numerics} numerics, {plan.graph} graph, arrivals {plan.arrivals}, {plan.created}"
    sections = [
        paragraph(title, first="", rest="  "),
        grid(comparison(plan), pinned=2),
        candidates(plan),
        reasons(plan),
        ["Measured on", *paragraph(" · ".join(f"{name} {value}" for name, value in measured_on(plan)), rest="  ")],
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def candidates(plan: Plan) -> list[str]:
    """The predicted table of draft lengths, with the budgets that chose each."""
    if not plan.candidates:
        return []
    return [
        "Predicted from evidence and step times; measured where it was replayed",
        *grid(prediction(plan), right=True),
    ]


def reasons(plan: Plan) -> list[str]:
    """Why, budget by budget, then what else the tuner had to say."""
    lines = ["Why"] if plan.choices else []
    for name, choice in plan.choices.items():
        for index, reason in enumerate(choice.reasons):
            lines += paragraph(reason, first=f"  {name}: " if index == 0 else "    ")
    for note in (*plan.graphs_compared, *plan.notes):
        lines += paragraph(note)
    return lines


def baseline_lines(baseline: Measurement) -> list[str]:
    """The target alone, as it was replayed before anything was chosen."""
    title = f"Baseline: the target alone, {baseline.graph} graph, arrivals {baseline.arrivals}, {baseline.created}"
    partial = " (interrupted: partial)" if baseline.interrupted else ""
    return [*paragraph(title + partial, first="", rest="  "), *facts(baseline_facts(baseline))]


def agreement_lines(found: tuple[Cell, ...]) -> list[str]:
    """Share of output tokens that the draft would have proposed, by bands, with the tokens behind each share."""
    title = "Evidence: share of the target's own tokens that the draft proposes (tokens counted), by length in tokens"
    body = [
        [prompt, *(f"{cell.share:.2f} ({cell.tokens})" if cell else "" for cell in cells)]
        for prompt, cells in rows(found).items()
    ]
    heads = ["prompt", *(f"output {name}" for name in outputs(found))]
    return [*paragraph(title, first="", rest="  "), *grid([heads, *body], right=True)]
