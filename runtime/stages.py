"""The stages of tuning: each runs what it must and returns a noun."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from specbuild.console import progress, say, step
from specbuild.errors import ServerError, ToolchainError
from specbuild.evidence import Evidence
from specbuild.measurement import RequestTimes
from specbuild.plan import Candidate, Graph, PolicySpec
from specbuild.profile import Profile
from specbuild.runtime import metrics, verify
from specbuild.runtime.arrivals import Arrivals, Load
from specbuild.runtime.decide import Confirmation, Replayed
from specbuild.runtime.evidence import Output, Scorer, gather
from specbuild.runtime.interleave import Lane, Span, interleave
from specbuild.runtime.policy import fixed
from specbuild.runtime.predict import candidates, walk
from specbuild.runtime.prepare import Prepared
from specbuild.runtime.replay import replay
from specbuild.runtime.session import Session
from specbuild.runtime.setting import Setting
from specbuild.runtime.stats import needed
from specbuild.runtime.steptimes import StepTimes, time_steps
from specbuild.runtime.tools import Tools, session_spec
from specbuild.units import NS_PER_S

OFF = PolicySpec.fixed(0)
USED = 0.75
"""Share of ``max_minutes`` that is planned; the rest is reserve for what budgets need."""
MARKS = {"baseline": 0.20, "graphs": 0.45, "confirm": 1.0}
"""When each stage should have ended, as shares of the planned time."""
STEPS_SHARE = 0.05
"""Share of the planned time for the step times of one graph."""
WANTED = 12
"""Groups that a paired interval should rest on; the reserve of time may be used to reach them."""
EVEN = 0.03
"""Graphs that differ by less are even; the fused one is then taken, because it needs no loop of ours."""


@dataclass
class Work:
    """One tuning: what it is about, what it runs on, and what it has noted."""

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
        """The end of all time that was given."""
        return self.begun_ns + round(self.max_minutes * 60 * NS_PER_S)

    def prepared(self) -> dict[str, Prepared]:
        """Every measured request by id."""
        return {request.id: request for load in (*self.first, *self.held_out) for request in load.requests}


def open_graph(work: Work, graph: Graph, sessions: dict[Graph, Session]) -> None:
    """Add a warm session of a graph; where the engines cannot run in it, a note instead."""
    with step(f"load the {graph} graph"):
        try:
            sessions[graph] = work.tools.session(session_spec(work.profile, work.setting.engines, graph))
        except ToolchainError as error:
            say(f"    the {graph} graph cannot run this pair: {error}")
            work.notes.append(f"the {graph} graph was left out: {error.faults[0].what}")
            return
        warm = work.first[0].requests[:1]
        for draft_len in (0, work.profile.limits.max_draft_len):
            replay(sessions[graph], Load(()), fixed(draft_len), work.arrivals, warmup=warm, clock=work.tools.clock)


def baseline(work: Work, session: Session) -> Replayed:
    """Off over the first half."""
    span = Span(work.least(4, 2), work.mark_ns("baseline"))
    with _groups("baseline: the target alone", work.first) as on_done:
        lanes = [Lane(session, OFF)]
        return interleave(lanes, work.first, work.arrivals, span, clock=work.tools.clock, on_done=on_done)[0]


def evidence(work: Work, off: Replayed, title: str) -> Evidence:
    """Evidence from what the target answered alone."""
    prepared = work.prepared()
    outputs = [Output(prepared[request.id], request.tokens.astype(np.int64)) for request in finished(off)]
    if not outputs:
        details = {request.detail for part in off.parts for request in part.requests}
        raise ServerError(f"no request of the baseline finished: {'; '.join(sorted(details)) or 'no output'}")
    with step(f"{title}: one draft pass over {len(outputs)} outputs"):
        sampled = any(not output.request.sampling.greedy for output in outputs)
        target = scorer(work, "target") if sampled else None
        return gather(outputs, scorer(work, "draft"), target, _identity(work))


def _identity(work: Work) -> dict[str, str]:
    setting = work.setting
    return {
        "pair": setting.engines.digest,
        "trace": setting.trace.digest,
        "numerics": work.profile.numerics,
        "draft source": "the compiled engine",
    }


def scorer(work: Work, role: str) -> Scorer:
    """An engine that reads whole sequences."""
    engine = work.setting.engines.target if role == "target" else work.setting.engines.draft
    return work.tools.scorer(engine.folder, work.profile.numerics, work.profile.limits.max_seq_len)


def running(work: Work, off: Replayed) -> dict[float, float]:
    """Requests at once -> share of rounds, as the load asks (closed) or as the baseline saw it (recorded)."""
    if work.arrivals.kind == "closed":
        return {min(work.arrivals.concurrency, work.slots): 1.0}
    return metrics.running_shares(off.parts, work.slots) or {1: 1.0}


def step_times(work: Work, session: Session, shares: Mapping[float, float]) -> StepTimes:
    """Round times at the batch sizes that the load has."""
    sizes = sorted(map(int, shares))
    batches = {sizes[0], sizes[len(sizes) // 2], sizes[-1]}
    prompts = sorted((r for load in work.first for r in load.requests), key=lambda request: len(request.token_ids))
    middle = prompts[len(prompts) // 4 : len(prompts) // 4 * 3 + 1]
    budget = round(work.max_minutes * 60 * USED * STEPS_SHARE * NS_PER_S)
    with step(f"step times of the {session.graph} graph"):
        longest = work.profile.limits.max_draft_len
        found = time_steps(session, middle, sorted(batches), longest, budget_ns=budget, clock=work.tools.clock)
    if found.noisy:
        work.notes.append(
            f"the machine is noisy: rounds of one setting spread over {found.noise:.0%} of their time "
            f"({session.graph} graph); something else uses it, and intervals are wide"
        )
    return found


def forecast(
    work: Work, seen: Evidence, off: Replayed, steps: StepTimes, shares: Mapping[float, float]
) -> tuple[Candidate, ...]:
    """Every draft length, off included, by evidence and step times."""
    lengths = range(work.profile.limits.max_draft_len + 1)
    walks = [walk(seen, draft_len, greedy_only=steps.graph == "fused") for draft_len in lengths]
    spent_ms = sum(metrics.latency(request).e2e for request in finished(off))
    return candidates(walks, steps, shares, spent_ms, thins=work.arrivals.kind == "recorded")


@dataclass(frozen=True)
class Comparison:
    """Which graph serves best, and the figures as words."""

    graph: Graph
    lines: tuple[str, ...]


def compare_graphs(work: Work, sessions: Mapping[Graph, Session], best: Mapping[Graph, Candidate]) -> Comparison:
    """Off and the best predicted length on every graph, interleaved at the profile's load, on the first half."""
    lanes = [
        Lane(sessions[graph], policy) for graph in sessions for policy in (OFF, PolicySpec.fixed(best[graph].draft_len))
    ]
    span = Span(work.least(2, 1), work.mark_ns("graphs"))
    with _groups(f"compare graphs: {' and '.join(sessions)}", work.first) as on_done:
        found = interleave(lanes, work.first, work.arrivals, span, clock=work.tools.clock, on_done=on_done)
    rates = {
        graph: (request_rate(found[2 * index]), request_rate(found[2 * index + 1]))
        for index, graph in enumerate(sessions)
    }
    top = max(max(pair) for pair in rates.values())
    chosen = next(graph for graph, pair in rates.items() if max(pair) >= top * (1 - EVEN))
    return Comparison(
        chosen, tuple(_graph_words(graph, pair, best[graph], graph == chosen) for graph, pair in rates.items())
    )


def finished(replayed: Replayed) -> list[RequestTimes]:
    """The requests that ended by themselves, with an output."""
    return [request for part in replayed.parts for request in part.requests if metrics.finished(request)]


def request_rate(replayed: Replayed) -> float:
    """Output tokens per second of request time."""
    done = finished(replayed)
    seconds = sum(metrics.latency(request).e2e for request in done) / 1000
    return sum(len(request.tokens) for request in done) / seconds if seconds else 0.0


def _graph_words(graph: Graph, rates: tuple[float, float], best: Candidate, chosen: bool) -> str:
    mark = "; serves this plan" if chosen else ""
    return (
        f"{graph}: off {rates[0]:.1f} tokens/s of request time, draft_len {best.draft_len} {rates[1]:.1f} "
        f"(predicted {best.speedup:.2f}x){mark}"
    )


def confirm(work: Work, session: Session, lengths: Sequence[int]) -> list[Replayed]:
    """Off and the finalists over the held-out half, interleaved; off is the first of the result."""
    size = len(work.held_out[0].requests)
    quantiles = [
        metrics.QUANTILES[key.split("_")[1]]
        for budget in work.profile.budgets.values()
        for key in metrics.limits_of(budget)
        if not key.startswith("itl")
    ]
    wanted = max(WANTED, math.ceil(max((needed(q) for q in quantiles), default=0) / size))
    span = Span(work.least(5, 4), work.mark_ns("confirm"), wanted, work.end_ns)
    lanes = [Lane(session, PolicySpec.fixed(draft_len)) for draft_len in (0, *lengths)]
    words = ", ".join(str(lane.policy) for lane in lanes)
    with _groups(f"confirm on held-out requests: {words}", work.held_out) as on_done:
        return interleave(lanes, work.held_out, work.arrivals, span, clock=work.tools.clock, on_done=on_done)


def check_outputs(work: Work, replayed: Sequence[Replayed]) -> str:
    """The line about equality of greedy outputs. Raises VerificationError where exact numerics are not exact."""
    seen = verify.compare(replayed[0], replayed[1:], work.prepared())
    if work.profile.numerics == "exact":
        verify.require_equal(seen)
    return verify.note(seen, scorer(work, "target") if seen.differing else None)


def confirmation(
    replayed: Sequence[Replayed], held_out: Evidence, graph: Graph, found: Sequence[Candidate]
) -> Confirmation:
    """What ``decide`` needs: the replays, and what the evidence of the same requests predicts for them."""
    predicted = {
        one.draft_len: walk(held_out, one.draft_len, greedy_only=graph == "fused").tokens_per_round for one in replayed
    }
    return Confirmation(replayed[0], tuple(replayed[1:]), tuple(found), predicted)


@contextmanager
def _groups(title: str, loads: Sequence[Load]) -> Iterator[Callable[[int], None]]:
    """A step with a progress bar over its groups; time may end it earlier."""
    size = len(loads[0].requests) if loads else 1
    with step(title), progress("requests", sum(len(load.requests) for load in loads)) as advance:
        yield lambda done: advance(done * size)
