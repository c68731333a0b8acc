"""Which graph serves a pair best: off and the best predicted length on each, in turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specbuild.plan import Candidate, Graph, PolicySpec
from specbuild.runtime import metrics
from specbuild.runtime.decide import Replayed
from specbuild.runtime.interleave import Lane, Span
from specbuild.runtime.session import Session
from specbuild.runtime.work import OFF, Work

EVEN = 0.03
"""Graphs that differ by less are even; the orchestrated one then serves.

It drafts for sampled requests too, decides every round, and holds the target once (docs/decisions/002).
"""
PREFERRED: tuple[Graph, ...] = ("orchestrated", "fused")


@dataclass(frozen=True)
class Comparison:
    """Which graph serves best, and the figures as words."""

    graph: Graph
    lines: tuple[str, ...]
    off_ns: int
    """What a group took on that graph under off."""
    best_ns: int
    """What it took with the best predicted length."""


def compare_graphs(work: Work, sessions: Mapping[Graph, Session], best: Mapping[Graph, Candidate]) -> Comparison:
    """Off and the best predicted length on every graph, interleaved at the profile's load, on the first half."""
    lanes = [Lane(session, policy) for graph, session in sessions.items() for policy in (OFF, _policy(best[graph]))]
    span = Span(work.least(2, 1), work.mark_ns("graphs"))
    found = iter(work.turns(f"compare graphs: {' and '.join(sessions)}", lanes, work.first, span))
    pairs = {graph: (next(found), next(found)) for graph in sessions}
    rates = {graph: (request_rate(off), request_rate(drafting)) for graph, (off, drafting) in pairs.items()}
    chosen = fastest({graph: max(pair) for graph, pair in rates.items()})
    return Comparison(
        graph=chosen,
        lines=tuple(_words(graph, pair, best[graph], graph == chosen) for graph, pair in rates.items()),
        off_ns=_group_ns(pairs[chosen][0]),
        best_ns=_group_ns(pairs[chosen][1]),
    )


def fastest(rates: Mapping[Graph, float]) -> Graph:
    """The graph with the highest rate; of those within ``EVEN`` of it the preferred one."""
    enough = max(rates.values()) * (1 - EVEN)
    return next(graph for graph in PREFERRED if rates.get(graph, 0) >= enough)


def _policy(candidate: Candidate) -> PolicySpec:
    return PolicySpec.fixed(candidate.draft_len)


def _group_ns(replayed: Replayed) -> int:
    """The mean time of a group, its lead included."""
    starts = [
        min(request.sent_ns for request in (*part.requests, *part.fillers))
        for part in replayed.parts
        if part.requests or part.fillers
    ]
    return sum(part.end_ns for part in replayed.parts) // len(starts) - sum(starts) // len(starts)


def request_rate(replayed: Replayed) -> float:
    """Output tokens per second of request time."""
    done = replayed.finished
    seconds = sum(metrics.latency(request).e2e for request in done) / 1000
    return sum(len(request.tokens) for request in done) / seconds if seconds else 0.0


def _words(graph: Graph, rates: tuple[float, float], best: Candidate, chosen: bool) -> str:
    mark = "; serves this plan" if chosen else ""
    return (
        f"{graph}: off {rates[0]:.1f} tokens/s of request time, draft_len {best.draft_len} {rates[1]:.1f} "
        f"(predicted {best.speedup:.2f}x){mark}"
    )
