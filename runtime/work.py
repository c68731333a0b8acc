"""One tuning under way: what it is about, what it runs on, how its time is shared out, what it has noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specbuild.console import progress, say, step
from specbuild.pair import Role
from specbuild.plan import PolicySpec
from specbuild.profile import Profile
from specbuild.runtime.arrivals import Arrivals, Load
from specbuild.runtime.decide import Replayed
from specbuild.runtime.evidence import Scorer
from specbuild.runtime.interleave import Lane, Span, interleave
from specbuild.runtime.prepare import Prepared
from specbuild.runtime.setting import Setting
from specbuild.runtime.tools import Tools
from specbuild.units import NS_PER_S

OFF = PolicySpec.fixed(0)
USED = 0.75
"""Share of ``max_minutes`` that is planned; the rest is reserve for what budgets need."""
MARKS = {"baseline": 0.20, "graphs": 0.45, "confirm": 1.0}
"""When each stage should have ended, as shares of the planned time."""
STEPS_SHARE = 0.05
"""Share of the planned time for the step times of one graph."""
LAST = 0.93
"""Share of ``max_minutes`` that replays may take; the last checks need the rest."""


@dataclass
class Work:
    """A tuning under way."""

    setting: Setting
    tools: Tools
    first: tuple[Load, ...]
    """Groups of the half that finds the candidates."""
    held_out: tuple[Load, ...]
    """Groups of the half that confirms them."""
    max_minutes: float
    begun_ns: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    scorers: dict[Role, Scorer] = field(default_factory=dict)
    """Engines that read whole sequences, loaded when first asked; cleared while sessions need the memory."""

    @property
    def profile(self) -> Profile:
        """The profile that is tuned."""
        return self.setting.profile

    @property
    def arrivals(self) -> Arrivals:
        """How requests arrive."""
        return self.setting.arrivals

    @property
    def slots(self) -> int:
        """Requests decoded at once at most."""
        return self.profile.limits.max_batch_size

    def least(self, single: int, many: int) -> int:
        """Groups that are replayed whatever the time: groups of a request, or of many at once."""
        return many if self.arrivals.kind == "recorded" or self.arrivals.concurrency > 1 else single

    def mark_ns(self, stage: str) -> int:
        """When a stage should have ended."""
        return self.begun_ns + round(self.max_minutes * 60 * USED * MARKS[stage] * NS_PER_S)

    @property
    def end_ns(self) -> int:
        """The end of all time that was given, less what the last checks take."""
        return self.begun_ns + round(self.max_minutes * 60 * LAST * NS_PER_S)

    @property
    def steps_ns(self) -> int:
        """Time for the step times of one graph."""
        return round(self.max_minutes * 60 * USED * STEPS_SHARE * NS_PER_S)

    def scorer(self, role: Role) -> Scorer:
        """An engine of the pair that reads whole sequences."""
        if role not in self.scorers:
            engine = self.setting.engines.target if role == "target" else self.setting.engines.draft
            self.scorers[role] = self.tools.scorer(
                engine.folder, self.profile.numerics, self.profile.limits.max_seq_len
            )
        return self.scorers[role]

    def warn(self, words: str) -> None:
        """Note it in the plan, and say it now."""
        self.notes.append(words)
        say(f"  ! {words}")

    def turns(self, title: str, lanes: Sequence[Lane], loads: Sequence[Load], span: Span) -> list[Replayed]:
        """Replay every lane over the groups, with a progress bar; time may end it before the last group."""
        size = max(len(load.requests) for load in loads)
        with step(title), progress("requests", sum(len(load.requests) for load in loads)) as advance:
            return interleave(
                lanes, loads, self.arrivals, span, clock=self.tools.clock, on_done=lambda done: advance(done * size)
            )

    def prepared(self) -> dict[str, Prepared]:
        """Every measured request by id."""
        return {request.id: request for load in (*self.first, *self.held_out) for request in load.requests}
