"""The plan on one terminal page: off and every budget's policy side by side, the prediction, and the reasons."""

from __future__ import annotations

from specbuild.plan import Plan
from specbuild.report.compare import comparison, prediction
from specbuild.report.layout import facts, grid, paragraph


def plan_table(plan: Plan) -> str:
    """The plan as plain text of at most 100 columns, ending with what it was measured on."""
    title = f"{plan.profile}: {plan.numerics} numerics, {plan.graph} graph, arrivals {plan.arrivals}, {plan.created}"
    sections = [
        paragraph(title, first="", rest="  "),
        grid(comparison(plan), pinned=2),
        candidates(plan),
        reasons(plan),
        ["Measured on", *facts(measured_on(plan))],
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def candidates(plan: Plan) -> list[str]:
    """The predicted table of draft lengths, with the budgets that chose each."""
    if not plan.candidates:
        return []
    return ["Predicted from evidence and step times, not measured", *grid(prediction(plan), right=True)]


def reasons(plan: Plan) -> list[str]:
    """Why, budget by budget, then what else the tuner had to say."""
    lines = ["Why"] if plan.choices else []
    for name, choice in plan.choices.items():
        for index, reason in enumerate(choice.reasons):
            lines += paragraph(reason, first=f"  {name}: " if index == 0 else "    ")
    for note in (*plan.graphs_compared, *plan.notes):
        lines += paragraph(note)
    return lines


def measured_on(plan: Plan) -> list[tuple[str, str]]:
    """Pair, trace and evidence by digest, then the environment."""
    digests = {"pair": plan.pair_digest, "trace": plan.trace_digest, "evidence": plan.evidence_digest}
    return [*((name, digest[:16]) for name, digest in digests.items()), *plan.environment.items()]
