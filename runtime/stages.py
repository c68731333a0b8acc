"""The stages of tuning: each runs what it must and returns a noun."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from specbuild.console import step
from specbuild.errors import ServerError, ToolchainError
from specbuild.evidence import Evidence
from specbuild.plan import Candidate, Graph, PolicySpec
from specbuild.runtime import metrics, verify
from specbuild.runtime.arrivals import Load
from specbuild.runtime.decide import Confirmation, Replayed
from specbuild.runtime.evidence import Output, gather
from specbuild.runtime.graphs import Comparison
from specbuild.runtime.interleave import Lane, Span
from specbuild.runtime.policy import fixed
from specbuild.runtime.predict import candidates, walk
from specbuild.runtime.replay import replay
from specbuild.runtime.session import Session
from specbuild.runtime.steptimes import StepTimes, time_steps
from specbuild.runtime.tools import session_spec
from specbuild.runtime.work import OFF, Work

WANTED = 12
"""Groups that a paired interval should rest on; the reserve of time may be used to reach them."""


def open_graph(work: Work, graph: Graph, sessions: dict[Graph, Session]) -> None:
    """Add a warm session of a graph; where the engines cannot run in it, a note instead."""
    with step(f"load the {graph} graph"):
        try:
            sessions[graph] = work.tools.session(session_spec(work.profile, work.setting.engines, graph))
        except ToolchainError as error:
            work.warn(f"the {graph} graph was left out: {error.faults[0].what}")
            return
        warm = work.first[0].requests[:1]
        for draft_len in (0, work.profile.limits.max_draft_len):
            replay(sessions[graph], Load(()), fixed(draft_len), work.arrivals, warmup=warm, clock=work.tools.clock)


def baseline(work: Work, session: Session) -> Replayed:
    """Off over the first half."""
    span = Span(work.least(4, 1), work.mark_ns("baseline"))
    return work.turns("baseline: the target alone", [Lane(session, OFF)], work.first, span)[0]


def evidence(work: Work, off: Replayed, title: str) -> Evidence:
    """Evidence from what the target answered alone."""
    prepared = work.prepared()
    outputs = [Output(prepared[request.id], request.tokens.astype(np.int64)) for request in off.finished]
    if not outputs:
        details = {request.detail for part in off.parts for request in part.requests}
        raise ServerError(f"no request of the baseline finished: {'; '.join(sorted(details)) or 'no output'}")
    with step(f"{title}: one draft pass over {len(outputs)} outputs"):
        sampled = any(not output.request.sampling.greedy for output in outputs)
        target = work.scorer("target") if sampled else None
        return gather(outputs, work.scorer("draft"), target, _identity(work))


def _identity(work: Work) -> dict[str, str]:
    setting = work.setting
    return {
        "pair": setting.engines.digest,
        "trace": setting.trace.digest,
        "numerics": work.profile.numerics,
        "draft source": "the compiled engine",
    }


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
    with step(f"step times of the {session.graph} graph"):
        longest = work.profile.limits.max_draft_len
        found = time_steps(session, middle, sorted(batches), longest, budget_ns=work.steps_ns, clock=work.tools.clock)
    if found.noisy:
        work.warn(
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
    spent_ms = sum(metrics.latency(request).e2e for request in off.finished)
    return candidates(walks, steps, shares, spent_ms, thins=work.arrivals.kind == "recorded")


def wanted(work: Work) -> int:
    """Held-out groups that intervals and the budgets' percentiles should rest on."""
    counts = [count for budget in work.profile.budgets.values() for count in metrics.requests_needed(budget).values()]
    return max(WANTED, math.ceil(max(counts, default=0) / len(work.held_out[0].requests)))


def affordable(work: Work, compared: Comparison, lengths: Sequence[int]) -> Sequence[int]:
    """The finalists that time allows for; one alone, with a note, where two would leave too few groups."""
    left = work.end_ns - work.tools.clock.now_ns()
    groups = min(wanted(work), len(work.held_out))
    if len(lengths) == 1 or left >= groups * (compared.off_ns + len(lengths) * compared.best_ns):
        return lengths
    work.notes.append(f"draft_len {lengths[1]} was not replayed: more time (--max-minutes) would allow for it")
    return lengths[:1]


def confirm(work: Work, session: Session, lengths: Sequence[int]) -> list[Replayed]:
    """Off and the finalists over the held-out half, interleaved; off is the first of the result."""
    span = Span(work.least(5, 4), work.mark_ns("confirm"), wanted(work), work.end_ns)
    lanes = [Lane(session, PolicySpec.fixed(draft_len)) for draft_len in (0, *lengths)]
    words = ", ".join(str(lane.policy) for lane in lanes)
    return work.turns(f"confirm on held-out requests: {words}", lanes, work.held_out, span)


def check_outputs(work: Work, replayed: Sequence[Replayed]) -> str:
    """The line about equality of greedy outputs. Raises VerificationError where exact numerics are not exact."""
    seen = verify.compare(replayed[0], replayed[1:], work.prepared())
    if work.profile.numerics == "exact":
        verify.require_equal(seen)
    return verify.note(seen, work.scorer("target") if seen.differing else None)


def confirmation(
    replayed: Sequence[Replayed], held_out: Evidence, graph: Graph, found: Sequence[Candidate]
) -> Confirmation:
    """What ``decide`` needs: the replays, and what the evidence of the same requests predicts for them."""
    predicted = {
        one.draft_len: walk(held_out, one.draft_len, greedy_only=graph == "fused").tokens_per_round for one in replayed
    }
    return Confirmation(replayed[0], tuple(replayed[1:]), tuple(found), predicted)
