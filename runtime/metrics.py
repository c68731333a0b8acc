"""What is measured of a request, defined once: formula, unit, source.

| metric | unit | formula |
|---|---|---|
| TTFT | ms | first chunk's time - time the request was sent |
| TPOT | ms/token | (last chunk's time - first chunk's time) / (tokens - tokens of the first chunk) |
| ITL | ms | per token: a chunk's gap to the one before, divided by its tokens, once for each of them |
| chunk | ms | gap between two chunks of a request: what a reader of the stream sees |
| e2e | ms | last chunk's time - time the request was sent |
| acceptance at i | share | rounds that accepted more than i / rounds that drafted more than i |
| acceptance length | tokens | 1 + accepted / rounds that drafted |
| goodput | requests/s | requests within the budget / all output tokens x output tokens/s |

TTFT, TPOT, ITL and e2e follow the MLPerf Inference and vLLM benchmark definitions; with one token in the first chunk
TPOT is their ``(last - first) / (n - 1)``. ITL is by token because a round emits several tokens at once: the gap of a
chunk of m tokens counts m times as gap / m, so its mean is TPOT whatever the chunk sizes. Goodput is that of DistServe
(Zhong et al. 2024). Times run from sending, not from the schedule; the lag between the two is kept beside them.

A request that timed out or failed counts as infinitely slow; one that was cancelled from outside is not counted, but
its outcome is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from specbuild.measurement import RequestTimes, Timeline
from specbuild.plan import Measured, PolicySpec
from specbuild.profile import Budget
from specbuild.runtime.stats import needed, quantile
from specbuild.units import NS_PER_MS, NS_PER_S, ms

Floats = npt.NDArray[np.float64]
QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
FAILED = ("timeout", "error")


@dataclass(frozen=True)
class Latency:
    """One request's latencies, ms; infinite where it failed, NaN where the metric does not exist for it."""

    ttft: float
    tpot: float
    e2e: float
    itl: Floats = field(repr=False)
    """float64 [tokens after the first chunk]."""
    chunk: Floats = field(repr=False)
    """float64 [chunks - 1]."""


def finished(request: RequestTimes) -> bool:
    """Whether it ended by itself, with an output."""
    return request.outcome in ("stop", "length") and len(request.tokens) > 0


def latency(request: RequestTimes) -> Latency:
    """The latencies of one request."""
    times, sizes = np.unique(request.token_ns, return_counts=True)
    failed = request.outcome in FAILED
    missing = math.inf if failed else math.nan
    if not len(times):
        return Latency(missing, missing, missing, np.empty(0), np.empty(0))
    gaps = np.diff(times) / NS_PER_MS
    after_first = int(sizes[1:].sum())
    return Latency(
        ttft=ms(times[0] - request.sent_ns),
        tpot=missing if failed or not after_first else ms(times[-1] - times[0]) / after_first,
        e2e=missing if failed else ms(times[-1] - request.sent_ns),
        itl=np.repeat(gaps / sizes[1:], sizes[1:]),
        chunk=gaps,
    )


def measure(parts: Sequence[Timeline], policy: PolicySpec, budgets: Mapping[str, Budget]) -> Measured:
    """One policy's replay, given as one timeline or several that ran one after the other."""
    requests = [request for part in parts for request in part.requests if request.outcome != "cancelled"]
    latencies = [latency(request) for request in requests]
    positions, acceptance_length = acceptance(requests)
    rate = tokens_per_s(parts)
    per_token = 1 / max(sum(len(request.tokens) for request in requests), 1)
    within = {
        name: sum(meets(one, request, budget) for one, request in zip(latencies, requests, strict=True))
        for name, budget in budgets.items()
    }
    return Measured(
        policy=policy,
        requests=len(requests),
        output_tokens_per_s=rate,
        quantiles_ms=quantiles(latencies),
        goodput_per_s={name: count * per_token * rate for name, count in within.items()},
        acceptance_per_position=positions,
        acceptance_length=acceptance_length,
        tokens_per_round=tokens_per_round(requests),
    )


def tokens_per_s(parts: Sequence[Timeline]) -> float:
    """Output tokens that arrived between a part's start and end, its fillers' included, per second of these spans."""
    seconds = sum(part.end_ns - part.start_ns for part in parts) / NS_PER_S
    tokens = sum(
        int(np.count_nonzero((request.token_ns >= part.start_ns) & (request.token_ns <= part.end_ns)))
        for part in parts
        for request in (*part.requests, *part.fillers)
    )
    return tokens / seconds if seconds > 0 else 0.0


def quantiles(latencies: Sequence[Latency]) -> dict[str, float]:
    """``ttft_p50`` ... → ms; a quantile that the sample does not support or that is infinite is absent."""
    samples = {
        "ttft": np.array([one.ttft for one in latencies]),
        "tpot": np.array([one.tpot for one in latencies]),
        "itl": np.concatenate([np.empty(0), *(one.itl for one in latencies)]),
        "chunk": np.concatenate([np.empty(0), *(one.chunk for one in latencies)]),
        "e2e": np.array([one.e2e for one in latencies]),
    }
    found = {
        f"{metric}_{name}": quantile(sample[~np.isnan(sample)], q)
        for metric, sample in samples.items()
        for name, q in QUANTILES.items()
    }
    return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}


def limits_of(budget: Budget) -> dict[str, float]:
    """The budget's limits as ``tpot_p95`` → ms; none for ``max_throughput``."""
    return {} if isinstance(budget, str) else {key.removesuffix("_ms"): limit for key, limit in budget.items()}


def requests_needed(budget: Budget) -> dict[str, int]:
    """The budget's limits on values of a request, ``tpot_p95`` ... → how many requests their percentile needs."""
    return {key: needed(QUANTILES[key.split("_")[1]]) for key in limits_of(budget) if not key.startswith("itl")}


def meets(one: Latency, request: RequestTimes, budget: Budget) -> bool:
    """Whether a single request keeps every limit: its own TTFT, TPOT and e2e, and that quantile of its own ITL.

    A request without a second chunk has no TPOT and no ITL and keeps every limit on them.
    """
    if request.outcome in FAILED:
        return False
    for key, limit in limits_of(budget).items():
        metric, name = key.split("_")
        value = float(np.quantile(one.itl, QUANTILES[name])) if metric == "itl" and len(one.itl) else math.nan
        if (value if metric == "itl" else getattr(one, metric)) > limit:
            return False
    return True


def meets_budget(measured: Measured, budget: Budget) -> bool:
    """Whether every quantile of the budget was measured and kept; ``max_throughput`` always is."""
    return all(measured.quantiles_ms.get(key, math.inf) <= limit for key, limit in limits_of(budget).items())


def acceptance(requests: Sequence[RequestTimes]) -> tuple[tuple[float, ...], float]:
    """Acceptance per position, and the acceptance length (1 where nothing was drafted)."""
    drafted = np.concatenate([np.empty(0, np.int32), *(request.drafted for request in requests)])
    accepted = np.concatenate([np.empty(0, np.int32), *(request.accepted for request in requests)])
    longest = int(drafted.max(initial=0))
    shares = tuple(float(np.mean(accepted[drafted > i] > i)) for i in range(longest))
    rounds = int(np.count_nonzero(drafted))
    return shares, 1 + float(accepted.sum()) / rounds if rounds else 1.0


def tokens_per_round(requests: Sequence[RequestTimes]) -> float:
    """Tokens after the first chunk, per chunk after it; 1 where there was no round."""
    rounds = tokens = 0
    for request in requests:
        sizes = np.unique(request.token_ns, return_counts=True)[1]
        rounds += max(len(sizes) - 1, 0)
        tokens += int(sizes[1:].sum())
    return tokens / rounds if rounds else 1.0


def outcomes(parts: Sequence[Timeline]) -> dict[str, int]:
    """Outcome → requests."""
    return dict(Counter(request.outcome for part in parts for request in part.requests))


def lag_ms(parts: Sequence[Timeline]) -> dict[str, float]:
    """How late requests were sent: p50 and p99 where the sample supports them, and the maximum."""
    late = [ms(request.sent_ns - request.scheduled_ns) for part in parts for request in part.requests]
    found = {"p50": quantile(late, 0.5), "p99": quantile(late, 0.99), "max": max(late, default=None)}
    return {name: value for name, value in found.items() if value is not None}


def running_shares(parts: Sequence[Timeline], at_most: int) -> dict[float, float]:
    """Requests being decoded at once -> the share of the measured requests' rounds that had so many."""
    counts: Counter[float] = Counter()
    for part in parts:
        alive = [request for request in (*part.requests, *part.fillers) if len(request.token_ns)]
        begun = np.sort(np.array([request.token_ns[0] for request in alive], np.int64))
        ended = np.sort(np.array([request.token_ns[-1] for request in alive], np.int64))
        for request in part.requests:
            times = np.unique(request.token_ns)[1:]
            running = np.searchsorted(begun, times, "right") - np.searchsorted(ended, times, "left")
            counts.update(np.clip(running, 1, at_most).tolist())
    return {running: count / counts.total() for running, count in sorted(counts.items())}
