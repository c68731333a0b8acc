"""Quantiles that a sample can support, and intervals for paired ratios. NumPy only."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from specbuild.plan import Interval

Floats = npt.NDArray[np.float64]
RESAMPLES = 2000
SIGNS = np.array([1.0, -1.0, -1.0, 1.0])
"""Of a0, a1, b0 and b1 in the logarithm of the ratio."""
REACH = 1000.0


def needed(q: float) -> int:
    """The smallest sample that supports quantile ``q``: ``ceil(1 / (1 - q))``, so 100 for p99, 20 for p95.

    With fewer, less than one value is expected above the quantile, and an estimate is only the sample's maximum (David
    and Nagaraja, Order Statistics, section 2.1: the maximum of n values lies at probability n / (n + 1) on average).
    """
    return math.ceil(round(1 / (1 - q), 6))


def quantile(values: npt.ArrayLike, q: float) -> float | None:
    """The quantile by linear interpolation (type 7 of Hyndman and Fan 1996); None where the sample does not support it.

    Infinite values stand for requests that never finished; a quantile that touches one is infinite.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    if len(ordered) < needed(q):
        return None
    place = q * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    share = place - math.floor(place)
    return float(low if share == 0 else math.inf if math.isinf(high) else low + share * (high - low))


def paired_ratio(a: tuple[Floats, Floats], b: tuple[Floats, Floats], *, level: float = 0.95, seed: int = 0) -> Interval:
    """``(sum a0 / sum a1) / (sum b0 / sum b1)`` with its interval.

    All four arrays are float64 [groups], positive, and belong together by index: a group is what ran at the same time
    under either policy, one request or several. Either end is the farther one of two: the percentile bootstrap over
    groups (paired, seeded), which sees skewed groups, and Student's t on the linearised logarithm (Cochran, Sampling
    Techniques, 1977, section 6.3), which knows that 5 to 20 groups are few, as a percentile interval does not. A
    single group supports no claim: its interval spans ``REACH`` times the value either way.
    """
    sums = np.stack([*a, *b], axis=1)
    groups, center = len(sums), _log_ratio(sums.sum(axis=0))
    if groups == 1:
        return _interval(center, -math.log(REACH), math.log(REACH))
    counts = np.random.default_rng(seed).multinomial(groups, np.full(groups, 1 / groups), size=RESAMPLES)
    share = (1 - level) / 2
    low, high = np.quantile(_log_ratio(counts.astype(np.float64) @ sums) - center, [share, 1 - share])
    errors = (sums / sums.sum(axis=0)) @ SIGNS
    width = student_t(1 - share, groups - 1) * math.sqrt((errors**2).sum() * groups / (groups - 1))
    return _interval(center, min(low, -width), max(high, width))


def _log_ratio(sums: Floats) -> Floats:
    """The logarithm of the ratio of ratios, from the last axis (a0, a1, b0, b1)."""
    logs: Floats = np.log(sums) @ SIGNS
    return logs


def _interval(center: Floats, low: float, high: float) -> Interval:
    value = math.exp(center)
    return Interval(value=value, low=value * math.exp(low), high=value * math.exp(high))


def student_t(p: float, freedom: int) -> float:
    """The quantile of Student's t by its expansion around the normal (Abramowitz and Stegun 26.7.5).

    1% off at 3 degrees of freedom; exact at 1 and 2.
    """
    if freedom == 1:
        return math.tan(math.pi * (p - 0.5))
    if freedom == 2:
        return (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    z = NormalDist().inv_cdf(p)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + terms[0] / freedom + terms[1] / freedom**2 + terms[2] / freedom**3


def rising(values: npt.ArrayLike, weights: npt.ArrayLike) -> Floats:
    """The nearest sequence (weighted least squares) that never falls: pool adjacent violators (Ayer et al. 1955)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(np.asarray(values, np.float64), np.asarray(weights, np.float64), strict=True):
        blocks.append((float(value), float(weight), 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, wa, na), (b, wb, nb) = blocks[-2:]
            blocks[-2:] = [((a * wa + b * wb) / (wa + wb), wa + wb, na + nb)]
    return np.array([value for value, _, count in blocks for _ in range(count)])
