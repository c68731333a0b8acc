"""What ``bench`` and ``tune`` left in the profile's out folder, read together: the noun that every form prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from specbuild.errors import ProfileError
from specbuild.evidence import Evidence
from specbuild.measurement import Measurement
from specbuild.plan import Plan
from specbuild.profile import Profile
from specbuild.record import Record
from specbuild.report.agreement import Cell, cells
from specbuild.report.steps import StepFile, StepGrid

PLAN, BASELINE, EVIDENCE, STEP_TIMES = "plan.json", "baseline.json", "evidence.npz", "steptimes.json"
T = TypeVar("T")


class Report(Record):
    """A plan or a baseline at least, with what else is there and belongs to it."""

    schema_version: Literal[1] = 1
    plan: Plan | None
    baseline: Measurement | None
    """The target alone, as it was replayed before anything was chosen."""
    agreement: tuple[Cell, ...]
    """Share of the target's tokens that the draft would have proposed; empty without evidence."""
    step_times: dict[str, StepGrid]
    """Graph → round times; empty where they were not kept."""
    cautions: tuple[str, ...]
    """What a reader must know before quoting a figure."""

    @classmethod
    def of_folder(cls, out: Path) -> Report:
        """Read the out folder of a profile; a file that is of another pair or trace than the plan is left out.

        Raises ProfileError where it holds neither a plan nor a baseline, or a damaged file.
        """
        plan = _if_there(out / PLAN, Plan.read)
        baseline = _if_there(out / BASELINE, Measurement.read)
        evidence = _if_there(out / EVIDENCE, Evidence.read)
        steps = _if_there(out / STEP_TIMES, StepFile.read)
        if plan is None and baseline is None:
            raise ProfileError("nothing to report yet", where=str(out), fix="run specbuild tune on this profile first")
        strangers = _strangers(plan, baseline, evidence, steps) if plan else []
        baseline = None if BASELINE in strangers else baseline
        return cls(
            plan=plan,
            baseline=baseline,
            agreement=cells(evidence) if evidence and EVIDENCE not in strangers else (),
            step_times=steps.graphs if steps and STEP_TIMES not in strangers else {},
            cautions=(
                *(f"{name} does not belong to {PLAN} and is left out; run specbuild tune again" for name in strangers),
                *_cautions(plan, baseline),
            ),
        )

    @classmethod
    def of_profile(cls, profile: Profile) -> Report:
        """Read what was made of a profile, with a caution where the profile has changed since."""
        report = cls.of_folder(profile.out)
        asked = report.plan.budgets if report.plan else {}
        if asked and asked != profile.budgets:
            changed = "the budgets of the profile have changed since the plan was made; run specbuild tune again"
            return report.model_copy(update={"cautions": (changed, *report.cautions)})
        return report

    @property
    def title(self) -> str:
        """The profile's name."""
        source = self.plan or self.baseline
        return source.profile if source else ""


def _if_there(path: Path, read: Callable[[Path], T]) -> T | None:
    return read(path) if path.exists() else None


def _strangers(
    plan: Plan, baseline: Measurement | None, evidence: Evidence | None, steps: StepFile | None
) -> list[str]:
    """The files that were made of something else than the plan."""
    pair = (plan.pair_digest, plan.numerics)
    same = {
        BASELINE: baseline is None or (baseline.pair_digest, baseline.numerics) == pair,
        EVIDENCE: evidence is None or evidence.digest() == plan.evidence_digest,
        STEP_TIMES: steps is None or (steps.pair_digest, steps.numerics) == pair,
    }
    return [name for name, belongs in same.items() if not belongs]


def _cautions(plan: Plan | None, baseline: Measurement | None) -> list[str]:
    found: list[str] = []
    if plan is None:
        found.append("there is no plan yet, only the baseline is shown; run specbuild tune")
    if baseline and baseline.interrupted:
        found.append(f"the baseline was interrupted with {baseline.unsent} requests unsent: its figures are partial")
    for name, choice in (plan.choices if plan else {}).items():
        if not choice.meets_budget:
            found.append(f"no policy meets the budget {name}; what is served for it is {choice.policy}")
        if not choice.confirmed:
            found.append(f"{name}: the replay contradicts the prediction, so this choice is unconfirmed")
    return found
