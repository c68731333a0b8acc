"""Running a pair: sessions, the speculation loop, replay, measurement, tuning. The verbs import what they need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specbuild.engine import Engines
    from specbuild.measurement import Measurement
    from specbuild.plan import Graph, Plan
    from specbuild.profile import Profile
    from specbuild.runtime.arrivals import Arrivals


def bench(
    profile: Profile,
    engines: Engines,
    *,
    draft_len: int = 0,
    graph: Graph = "fused",
    arrivals: Arrivals | None = None,
    requests: int | None = None,
    out: Path | None = None,
) -> Measurement:
    """See ``specbuild.runtime.benching.bench``."""
    from specbuild.runtime import benching

    return benching.bench(
        profile, engines, draft_len=draft_len, graph=graph, arrivals=arrivals, requests=requests, out=out
    )


def tune(profile: Profile, engines: Engines, *, max_minutes: float = 2.0, fresh: bool = False) -> Plan:
    """See ``specbuild.runtime.tuning.tune``."""
    from specbuild.runtime import tuning

    return tuning.tune(profile, engines, max_minutes=max_minutes, fresh=fresh)
