"""What a plan gives through Triton: its policy against off, request by request in turns, on the profile's traffic.

    python benchmarks/served.py PROFILE [--requests 40] [--draft-len N]

The plan of PROFILE is rendered and served; every request of an evenly spread part of the traffic goes to the server
twice, once with the plan's policy (or ``--draft-len``) and once with draft_len 0, the first one changing. Prints output
tokens per second of request time and of decoding alone, their paired ratios with 95% intervals, and how many greedy
outputs differ.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Set
from dataclasses import dataclass, replace
from pathlib import Path

from specbuild import builder, triton_repo
from specbuild import trace as traces
from specbuild.engine import Engines
from specbuild.measurement import RequestTimes
from specbuild.plan import Plan, PolicySpec
from specbuild.profile import Profile
from specbuild.runtime import verify
from specbuild.runtime.arrivals import Arrivals
from specbuild.runtime.decide import Replayed, speedup
from specbuild.runtime.environment import environment
from specbuild.runtime.graphs import request_rate
from specbuild.runtime.interleave import Lane, Span, interleave
from specbuild.runtime.prepare import Prepared, prepare
from specbuild.runtime.split import groups
from specbuild.runtime.tools import open_tokenizer
from specbuild.runtime.triton import TritonSession
from specbuild.triton_repo.server import Ports, running


@dataclass(frozen=True)
class Job:
    """A profile with all that it was compiled and tuned to."""

    profile: Profile
    engines: Engines
    plan: Plan

    @classmethod
    def read(cls, path: Path) -> Job:
        profile = Profile.load(path)
        return cls(profile, builder.find_engines(profile), Plan.read(profile.out / "plan.json"))

    def requests(self, count: int) -> list[Prepared]:
        trace = traces.load(self.profile.resolve(self.profile.traffic.file)).take(count)
        tokenizer = open_tokenizer(self.engines.target.folder)
        return list(prepare(trace.requests, tokenizer, self.profile.limits).requests)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("profile", type=Path)
    arguments.add_argument("--requests", type=int, default=40)
    arguments.add_argument("--draft-len", type=int)
    given = arguments.parse_args()
    job = Job.read(given.profile)
    chosen = next(iter(job.plan.choices.values())).policy
    policy = chosen if given.draft_len is None else PolicySpec.fixed(given.draft_len)
    requests = job.requests(given.requests)
    with tempfile.TemporaryDirectory() as folder:
        repository = triton_repo.render(job.profile, job.engines, job.plan, out=Path(folder) / "repository")
        with running(repository, ports=Ports.free()) as server:
            session = TritonSession(server.grpc_url, job.profile.model_name)
            try:
                off, plan = replay(session, policy, requests)
            finally:
                session.close()
    show(job, off, plan, requests)


def replay(session: TritonSession, policy: PolicySpec, requests: list[Prepared]) -> list[Replayed]:
    """Both policies over the same requests, in turns, one request at a time."""
    arrivals = Arrivals("closed", 1)
    lanes = [Lane(session, PolicySpec.fixed(0)), Lane(session, policy)]
    warm = groups([request.again(-1) for request in requests[:2]], arrivals, 1)
    interleave(lanes, warm, arrivals, Span(len(warm), 0))
    loads = groups(requests, arrivals, 1)
    return interleave(lanes, loads, arrivals, Span(len(loads), 0))


def show(job: Job, off: Replayed, plan: Replayed, requests: list[Prepared]) -> None:
    by_id = {request.id: request for request in requests}
    seen = verify.compare(off, [plan], by_id)
    target = job.engines.target.manifest
    print(
        f"{job.profile.name}: {target.precision} target, {job.profile.numerics} numerics, {job.plan.graph} graph, "
        f"through Triton over gRPC, one request at a time, {plan.policy}"
    )
    print(f"  {'':<32}{'requests':>8}{'off':>8}{'plan':>8}   plan / off, 95% interval paired by request")
    greedy = {request.id for request in requests if request.sampling.greedy}
    row("output tokens/s of request time", off, plan)
    row("  of greedy requests", only(off, greedy), only(plan, greedy))
    row("  of sampled requests", only(off, by_id.keys() - greedy), only(plan, by_id.keys() - greedy))
    row("tokens/s behind the first", decoding(off), decoding(plan))
    row("  of greedy requests", decoding(only(off, greedy)), decoding(only(plan, greedy)))
    print(f"  greedy outputs that differ from off: {len(seen.differing)} of {seen.compared}")
    print("  on " + " · ".join(f"{name} {value}" for name, value in environment().items()))


def row(title: str, off: Replayed, plan: Replayed) -> None:
    if not off.finished:
        return
    ratio = speedup(plan, off)
    print(
        f"  {title:<32}{len(off.finished):>8}{request_rate(off):>8.1f}{request_rate(plan):>8.1f}"
        f"   {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    )


def only(replayed: Replayed, ids: Set[str]) -> Replayed:
    """The requests with these ids."""
    parts = [replace(part, requests=tuple(r for r in part.requests if r.id in ids)) for part in replayed.parts]
    return replace(replayed, parts=tuple(parts))


def decoding(replayed: Replayed) -> Replayed:
    """What came behind each request's first chunk, timed from it: reading the prompt is left out."""
    parts = [replace(part, requests=tuple(map(_behind_first, part.requests))) for part in replayed.parts]
    return replace(replayed, parts=tuple(parts))


def _behind_first(request: RequestTimes) -> RequestTimes:
    first = request.token_ns[0]
    later = request.token_ns > first
    if not later.any():
        return replace(request, outcome="cancelled")
    return replace(request, sent_ns=int(first), token_ns=request.token_ns[later], tokens=request.tokens[later])


if __name__ == "__main__":
    main()
