"""What ``bench`` and ``tune`` left in the profile's out folder, read together: the noun that every form prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from specbuild.errors import ProfileError
from specbuild.evidence import Evidence
from specbuild.measurement import Measurement, Measurements
from specbuild.plan import Plan
from specbuild.profile import Profile
from specbuild.record import Record
from specbuild.report.agreement import Cell, cells
from specbuild.report.steps import StepFile, StepGrid

PLAN, BASELINE, EVIDENCE, STEP_TIMES = "plan.json", "baseline.json", "evidence.npz", "steptimes.json"
REPLAYS, BENCHES = "measurements.json", "bench_*.json"
T = TypeVar("T")


class Report(Record):
    """A plan or a measurement at least, with what else is there and belongs to it."""

    schema_version: Literal[1] = 1
    plan: Plan | None
    baseline: Measurement | None
    """The target alone, as it was replayed before anything was chosen."""
    replays: tuple[Measurement, ...]
    """What ``tune`` replayed to decide, then what ``bench`` replayed."""
    agreement: tuple[Cell, ...]
    """Share of the target's tokens that the draft would have proposed; empty without evidence."""
    step_times: dict[str, StepGrid]
    """Graph → round times; empty where they were not kept."""
    cautions: tuple[str, ...]
    """What a reader must know before quoting a figure."""

    @classmethod
    def of_folder(cls, out: Path) -> Report:
        """Read the out folder of a profile; a file that is of another pair or trace than the plan is left out.

        Raises ProfileError where it holds neither a plan nor a measurement, or a damaged file.
        """
        plan = _if_there(out / PLAN, Plan.read)
        found = _Found(
            baseline=_if_there(out / BASELINE, Measurement.read),
            replays=_if_there(out / REPLAYS, Measurements.read),
            benches={path.name: Measurement.read(path) for path in sorted(out.glob(BENCHES))},
            evidence=_if_there(out / EVIDENCE, Evidence.read),
            steps=_if_there(out / STEP_TIMES, StepFile.read),
        )
        if plan is None and found.baseline is None and not found.benches:
            raise ProfileError("nothing to report yet", where=str(out), fix="run specbuild tune on this profile first")
        strangers = found.strangers(plan) if plan else []
        found = found.without(strangers)
        return cls(
            plan=plan,
            baseline=found.baseline,
            replays=(*(found.replays.measurements if found.replays else ()), *found.benches.values()),
            agreement=cells(found.evidence) if found.evidence else (),
            step_times=found.steps.graphs if found.steps else {},
            cautions=(
                *(f"{name} does not belong to {PLAN} and is left out; run specbuild tune again" for name in strangers),
                *_cautions(plan, found.baseline),
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
        return next(source.profile for source in (self.plan, self.baseline, *self.replays) if source)


def _if_there(path: Path, read: Callable[[Path], T]) -> T | None:
    return read(path) if path.exists() else None


@dataclass(frozen=True)
class _Found:
    """What lay beside the plan."""

    baseline: Measurement | None
    replays: Measurements | None
    benches: dict[str, Measurement]
    evidence: Evidence | None
    steps: StepFile | None

    def strangers(self, plan: Plan) -> list[str]:
        """The files that were made of another pair or with other numerics than the plan."""
        owners: list[tuple[str, Measurement | StepFile]] = [
            *((REPLAYS, one) for one in (self.replays.measurements if self.replays else ())),
            *self.benches.items(),
            *([(BASELINE, self.baseline)] if self.baseline else []),
            *([(STEP_TIMES, self.steps)] if self.steps else []),
        ]
        pair = (plan.pair_digest, plan.numerics)
        named = dict.fromkeys(name for name, one in owners if (one.pair_digest, one.numerics) != pair)
        strange = self.evidence is not None and self.evidence.digest() != plan.evidence_digest
        return [*named, *([EVIDENCE] if strange else [])]

    def without(self, names: list[str]) -> _Found:
        """The same without the files of these names."""
        return _Found(
            baseline=None if BASELINE in names else self.baseline,
            replays=None if REPLAYS in names else self.replays,
            benches={name: one for name, one in self.benches.items() if name not in names},
            evidence=None if EVIDENCE in names else self.evidence,
            steps=None if STEP_TIMES in names else self.steps,
        )


def _cautions(plan: Plan | None, baseline: Measurement | None) -> list[str]:
    found: list[str] = []
    if plan is None:
        found.append("there is no plan yet: run specbuild tune")
    if baseline and baseline.interrupted:
        found.append(f"the baseline was interrupted with {baseline.unsent} requests unsent: its figures are partial")
    for name, choice in (plan.choices if plan else {}).items():
        if not choice.meets_budget:
            found.append(f"no policy meets the budget {name}; what is served for it is {choice.policy}")
        if not choice.confirmed:
            found.append(f"{name}: the replay contradicts the prediction, so this choice is unconfirmed")
    return found
