"""From a pair and its traffic to a plan: baseline, evidence, step times, prediction, confirmation, decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbuild import trace as traces
from specbuild.clock import utc_stamp
from specbuild.console import say, step
from specbuild.engine import Engines
from specbuild.errors import ProfileError, ToolchainError
from specbuild.evidence import Evidence
from specbuild.measurement import Measurements
from specbuild.plan import Graph, Plan
from specbuild.profile import Profile
from specbuild.runtime import metrics, stages
from specbuild.runtime.arrivals import Arrivals
from specbuild.runtime.decide import Confirmation, Replayed, decide, with_replays
from specbuild.runtime.environment import environment
from specbuild.runtime.evidence import join
from specbuild.runtime.graphs import Comparison, compare_graphs
from specbuild.runtime.predict import finalists
from specbuild.runtime.prepare import Preparation, prepare
from specbuild.runtime.session import Session
from specbuild.runtime.setting import Setting
from specbuild.runtime.split import groups, halves, portion
from specbuild.runtime.steptimes import StepTimes, StepTimesFile
from specbuild.runtime.tools import REAL_TOOLS, Tools
from specbuild.runtime.work import OFF, Work

PLAN, EVIDENCE, STEPTIMES = "plan.json", "evidence.npz", "steptimes.json"
BASELINE, MEASUREMENTS = "baseline.json", "measurements.json"
GRAPHS: tuple[Graph, ...] = ("fused", "orchestrated")
LEAST = 8
"""Requests below which halves are too small to show anything."""
MOST = 2000
"""Requests looked at where the profile sets no ``traffic.max_requests``; time allows for fewer."""


def tune(
    profile: Profile, engines: Engines, *, max_minutes: float = 2.0, fresh: bool = False, tools: Tools = REAL_TOOLS
) -> Plan:
    """Choose a policy for every budget, and write the plan with all it rests on into ``profile.out``.

    A plan whose ``key`` is unchanged is returned as it is, unless ``fresh``. ``max_minutes`` bounds how many requests
    are replayed. A budget that nothing meets has a choice all the same, with ``meets_budget`` False.

    Raises ProfileError (the trace), ToolchainError (the engines run in no graph), ServerError (a session fails),
    VerificationError (``exact`` numerics, and a greedy output differs from the target alone; no plan is written).
    """
    trace = traces.load(profile.resolve(profile.traffic.file))
    setting = Setting(profile, engines, trace, Arrivals.of(profile.traffic), environment())
    known = None if fresh else current_plan(setting)
    if known is not None:
        say("the plan is current: nothing that it was tuned on has changed (--fresh measures again)")
        return known
    work = _prepare(setting, max_minutes, tools)
    found = _measure(work)
    plan = _plan(work, found)
    _write(work, found, plan)
    return plan


def current_plan(setting: Setting) -> Plan | None:
    """The plan in ``profile.out`` if it was made of the same; None where there is none or another."""
    path = setting.profile.out / PLAN
    if not path.is_file():
        return None
    try:
        plan = Plan.read(path)
    except ProfileError as error:
        say(f"the plan there cannot be read and is made anew: {error}")
        return None
    return plan if plan.key == setting.key else None


def _prepare(setting: Setting, max_minutes: float, tools: Tools) -> Work:
    """Both halves as groups of token ids."""
    begun = tools.clock.now_ns()
    profile, arrivals, slots = setting.profile, setting.arrivals, setting.profile.limits.max_batch_size
    half = halves(portion(setting.trace, arrivals, profile.traffic.max_requests or MOST), arrivals)
    with step(f"tokenize {len(half.first) + len(half.held_out)} requests"):
        tokenizer = tools.tokenizer(setting.engines.target.folder)
        first, held_out = (prepare(part, tokenizer, profile.limits) for part in (half.first, half.held_out))
    if min(len(first.requests), len(held_out.requests)) < LEAST // 2:
        raise ProfileError(
            f"a plan needs at least {LEAST} requests that can be replayed, half of them held out; the trace has "
            f"{len(first.requests)} and {len(held_out.requests)}",
            where=profile.where("traffic", "file"),
            fix="give a longer trace",
        )
    work = Work(
        setting=setting,
        tools=tools,
        first=groups(first.requests, arrivals, slots),
        held_out=groups(held_out.requests, arrivals, slots),
        max_minutes=max_minutes,
        begun_ns=begun,
        left_out=Counter(first.left_out) + Counter(held_out.left_out),
    )
    _note(work, first, held_out)
    for name, budget in profile.budgets.items():
        for quantile, count in metrics.requests_needed(budget).items():
            if count > len(held_out.requests):
                work.warn(
                    f"budget {name!r} cannot be judged: {quantile} needs {count} held-out requests, the trace leaves "
                    f"{len(held_out.requests)}"
                )
    return work


def _note(work: Work, *preparations: Preparation) -> None:
    work.notes.extend(f"{count} requests were left out: {reason}" for reason, count in work.left_out.items())
    if clipped := sum(one.clipped for one in preparations):
        work.notes.append(f"the output limit of {clipped} requests was cut to what limits.max_seq_len leaves")


@dataclass(frozen=True)
class _Found:
    """All that was measured."""

    baseline: Replayed
    baseline_graph: Graph
    steps: Mapping[Graph, StepTimes]
    compared: Comparison
    replayed: Sequence[Replayed]
    """Off, then the finalists."""
    confirmation: Confirmation
    evidence: Evidence
    """Of both halves."""


def _measure(work: Work) -> _Found:
    sessions: dict[Graph, Session] = {}
    try:
        for graph in GRAPHS:
            stages.open_graph(work, graph, sessions)
        if not sessions:
            raise ToolchainError("the engines run in neither graph: " + "; ".join(work.notes))
        return _measure_on(work, sessions)
    finally:
        for session in sessions.values():
            session.close()


def _measure_on(work: Work, sessions: dict[Graph, Session]) -> _Found:
    """All stages; a session is closed and dropped as soon as none needs it."""
    baseline_graph = next(iter(sessions))
    off = stages.baseline(work, sessions[baseline_graph])
    seen = stages.evidence(work, off, "evidence")
    work.scorers.clear()
    shares = stages.running(work, off)
    steps = {graph: stages.step_times(work, session, shares) for graph, session in sessions.items()}
    ahead = {graph: stages.forecast(work, seen, off, steps[graph], shares) for graph in sessions}
    best = {graph: finalists(candidates)[0] for graph, candidates in ahead.items()}
    compared = compare_graphs(work, sessions, best)
    for graph in [graph for graph in sessions if graph != compared.graph]:
        sessions.pop(graph).close()
    lengths = stages.affordable(work, compared, [one.draft_len for one in finalists(ahead[compared.graph])])
    replayed = stages.confirm(work, sessions[compared.graph], lengths)
    sessions.pop(compared.graph).close()
    work.notes.append(stages.check_outputs(work, replayed))
    held_out = stages.evidence(work, replayed[0], "check the prediction")
    confirmation = stages.confirmation(replayed, held_out, compared.graph, ahead[compared.graph])
    return _Found(off, baseline_graph, steps, compared, replayed, confirmation, join(seen, held_out))


def _plan(work: Work, found: _Found) -> Plan:
    setting, profile, off = work.setting, work.setting.profile, found.replayed[0]
    failed = [f"{one.failed} requests failed under {one.policy}" for one in found.replayed if one.failed]
    return Plan(
        key=setting.key,
        profile=profile.name,
        pair_digest=setting.engines.digest,
        trace_digest=setting.trace.digest,
        numerics=profile.numerics,
        graph=found.compared.graph,
        arrivals=str(setting.arrivals),
        requests={
            "trace": len(setting.trace.requests),
            "baseline": sum(len(part.requests) for part in found.baseline.parts),
            "held_out": sum(len(part.requests) for part in off.parts),
        },
        off=metrics.measure(off.parts, OFF, profile.budgets),
        candidates=with_replays(found.confirmation),
        choices=decide(profile.budgets, found.confirmation),
        budgets=profile.budgets,
        evidence_digest=found.evidence.digest(),
        environment=setting.environment,
        graphs_compared=found.compared.lines,
        notes=(*work.notes, *failed),
        created=utc_stamp(),
    )


def _write(work: Work, found: _Found, plan: Plan) -> None:
    """Write all files, the plan last: where it is, the others belong to it."""
    setting, out = work.setting, work.setting.profile.out
    (out / PLAN).unlink(missing_ok=True)
    found.evidence.write(out / EVIDENCE)
    StepTimesFile(
        pair_digest=plan.pair_digest,
        numerics=plan.numerics,
        environment=plan.environment,
        graphs=dict(found.steps),
    ).write(out / STEPTIMES)
    base = found.baseline
    setting.measurement(base.parts, base.policy, found.baseline_graph, work.left_out).write(out / BASELINE)
    Measurements(
        measurements=tuple(
            setting.measurement(one.parts, one.policy, plan.graph, work.left_out) for one in found.replayed
        )
    ).write(out / MEASUREMENTS)
    plan.write(out / PLAN)
