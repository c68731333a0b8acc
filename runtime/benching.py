"""One policy on the profile's traffic, replayed and measured."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from specbuild import trace as traces
from specbuild.console import progress, step
from specbuild.engine import Engines
from specbuild.errors import ProfileError
from specbuild.measurement import Measurement
from specbuild.plan import Graph, PolicySpec
from specbuild.profile import Profile
from specbuild.runtime.arrivals import Arrivals, Load
from specbuild.runtime.environment import environment
from specbuild.runtime.interleave import DEADLINES
from specbuild.runtime.policy import fixed
from specbuild.runtime.prepare import Preparation, prepare
from specbuild.runtime.replay import replay
from specbuild.runtime.setting import Setting
from specbuild.runtime.split import portion
from specbuild.runtime.tools import REAL_TOOLS, Tools, session_spec

WARM_UP = 2
"""Requests that run before and are not measured."""


def bench(
    profile: Profile,
    engines: Engines,
    *,
    draft_len: int = 0,
    graph: Graph = "fused",
    arrivals: Arrivals | None = None,
    requests: int | None = None,
    out: Path | None = None,
    tools: Tools = REAL_TOOLS,
) -> Measurement:
    """Replay the traffic with a fixed ``draft_len`` (0: off) and write the measurement.

    ``arrivals`` and ``requests`` take the place of the profile's. The file is ``out``, or
    ``bench_<graph>_<policy>.json`` in ``profile.out``. An interrupt gives what was measured so far, marked
    ``interrupted``.

    Raises ProfileError (the trace; a draft_len beyond the limits), ToolchainError (the engines do not load).
    """
    if not 0 <= draft_len <= profile.limits.max_draft_len:
        raise ProfileError(
            f"draft_len {draft_len} is not within 0 to {profile.limits.max_draft_len}",
            where=profile.where("limits", "max_draft_len"),
        )
    trace = traces.load(profile.resolve(profile.traffic.file))
    arrivals = arrivals or Arrivals.of(profile.traffic)
    part = portion(trace, arrivals, requests or profile.traffic.max_requests)
    with step(f"tokenize {len(part.requests)} requests"):
        ready = prepare(part.requests, tools.tokenizer(engines.target.folder), profile.limits)
    setting = Setting(profile, engines, part, arrivals, environment())
    measured = _run(setting, ready, draft_len, graph, tools)
    measured.write(out or path_of(profile, graph, draft_len))
    return measured


def path_of(profile: Profile, graph: Graph, draft_len: int) -> Path:
    """Where a measurement is written."""
    policy = f"draft_len_{draft_len}" if draft_len else "off"
    return profile.out / f"bench_{graph}_{policy}.json"


def _run(setting: Setting, ready: Preparation, draft_len: int, graph: Graph, tools: Tools) -> Measurement:
    policy = PolicySpec.fixed(draft_len)
    with step(f"load the {graph} graph"):
        spec = session_spec(setting.profile, setting.engines, graph, speculative=draft_len > 0)
        session = tools.session(spec)
    with closing(session), progress(f"{policy}, {setting.arrivals}", len(ready.requests)) as on_done:
        line = replay(
            session,
            Load(ready.requests),
            fixed(draft_len),
            setting.arrivals,
            warmup=ready.requests[:WARM_UP],
            deadlines=DEADLINES,
            clock=tools.clock,
            on_done=on_done,
        )
    return setting.measurement([line], policy, graph, ready.left_out)
