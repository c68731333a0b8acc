"""Quantiles that a sample can support, and intervals for paired ratios. NumPy only."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from specbuild.plan import Interval

Floats = npt.NDArray[np.float64]
RESAMPLES = 2000


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


def paired_ratio(a: tuple[Floats, Floats], b: tuple[Floats, Floats], *, seed: int = 0) -> Interval:
    """``(sum a0 / sum a1) / (sum b0 / sum b1)`` with its 95% interval.

    All four arrays are float64 [groups] and belong together by index: a group is what ran at the same time under
    either policy, one request or several. Groups are resampled with replacement (paired, seeded), and the percentile
    interval is widened for small samples (see ``tail``). One group alone supports no interval: it spans 0 to twice
    the value at least.
    """
    sums = np.stack([*a, *b], axis=1)
    groups = len(sums)
    value = float(_ratio(sums.sum(axis=0)))
    if groups < 2:
        return Interval(value=value, low=0.0, high=max(2 * value, 1.0))
    counts = np.random.default_rng(seed).multinomial(groups, np.full(groups, 1 / groups), size=RESAMPLES)
    ratios = _ratio(counts.astype(np.float64) @ sums)
    share = tail(groups)
    low, high = np.quantile(ratios, [share, 1 - share])
    return Interval(value=value, low=float(low), high=float(high))


def _ratio(sums: Floats) -> Floats:
    """The ratio of ratios from the last axis (a0, a1, b0, b1); a resample without any time or token counts as 1."""
    above, below = sums[..., 0] * sums[..., 3], sums[..., 1] * sums[..., 2]
    ratio: Floats = np.divide(above, below, out=np.ones_like(above), where=below > 0)
    return ratio


def tail(groups: int, level: float = 0.95) -> float:
    """The share to cut off at either end of a bootstrap distribution of ``groups`` values.

    Percentile intervals are too narrow for small samples; Hesterberg's expanded ones (What Teachers Should Know About
    the Bootstrap, 2015, section 5.3) cut at ``Phi(-sqrt(n / (n - 1)) t(n - 1))`` instead of ``(1 - level) / 2``.
    """
    wide = math.sqrt(groups / (groups - 1)) * student_t(1 - (1 - level) / 2, groups - 1)
    return NormalDist().cdf(-wide)


def student_t(p: float, freedom: int) -> float:
    """The quantile of Student's t by its expansion around the normal (Abramowitz and Stegun 26.7.5); 1% off at 3."""
    z = NormalDist().inv_cdf(p)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + terms[0] / freedom + terms[1] / freedom**2 + terms[2] / freedom**3
