"""``specbuild tune``: choose the draft length for every budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from specbuild.cli.options import json_option, profile_argument, store_option
from specbuild.console import result, result_json, say
from specbuild.errors import BudgetError, Fault

if TYPE_CHECKING:
    from specbuild.plan import Plan
    from specbuild.profile import Profile


@click.command("tune")
@profile_argument
@click.option(
    "--max-minutes",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    help="Time for measuring; it bounds how many requests are replayed.",
)
@click.option("--fresh", is_flag=True, help="Measure again even where the plan is current.")
@store_option
@json_option
def command(profile: Path, max_minutes: float, fresh: bool, store: Path | None, as_json: bool) -> None:
    """Choose the draft length that keeps every budget of PROFILE on its traffic, and write the plan.

    Exit code 6 where no policy keeps a budget; the plan is written all the same.
    """
    from specbuild import runtime
    from specbuild.builder import find_engines
    from specbuild.profile import Profile
    from specbuild.report.terminal import plan_table

    loaded = Profile.load(profile)
    plan = runtime.tune(loaded, find_engines(loaded, store=store), max_minutes=max_minutes, fresh=fresh)
    missed = _missed(loaded, plan)
    if as_json and not missed:
        result_json(plan.model_dump(mode="json"))
    elif not as_json:
        result(plan_table(plan).rstrip())
    say(f"the plan is in {loaded.out / 'plan.json'}")
    if missed:
        raise BudgetError(missed)


def _missed(profile: Profile, plan: Plan) -> list[Fault]:
    """The budgets that are not kept, each with the last of its reasons: the limit and what was measured."""
    return [
        Fault(f"budget {name!r}: {choice.reasons[-1]}", profile.where("budgets", name), _fix(plan, name))
        for name, choice in plan.choices.items()
        if not choice.meets_budget
    ]


def _fix(plan: Plan, name: str) -> str:
    limits, measured = plan.budgets[name], plan.choices[name].measured
    if any(key.removesuffix("_ms") not in measured.quantiles_ms for key in limits):
        return "give it more time (--max-minutes) or a longer trace; the plan is written"
    return "relax it, or take a faster pair; the plan is written and says what is best"
