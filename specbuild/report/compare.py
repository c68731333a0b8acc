"""Off and every budget's policy side by side, as words: the rows that each form of the report prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specbuild.measurement import Measurement
from specbuild.plan import Choice, Interval, Measured, Plan
from specbuild.report.layout import bars, number

METRICS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "chunk": "chunk gap", "e2e": "e2e"}
"""Prefix of a quantile's name → the word people use."""
PERCENTILES = ("p50", "p95", "p99")
ABSENT = "–"
PARTIAL = "\n(interrupted: partial)"


def comparison(plan: Plan) -> list[list[str]]:
    """Rows of cells, labels first, then off, then one column a budget; a row that nobody can fill is left out."""
    labels = [
        "",
        "policy",
        "budget",
        "output tokens/s",
        "speedup over off",
        "in budget, requests/s",
        *(f"{METRICS[metric]} {'/'.join(PERCENTILES)} ms" for metric in shown_metrics(plan)),
        "tokens a round",
        "accepted at 1, 2, …",
        "requests replayed",
    ]
    columns = [_off_column(plan), *(_choice_column(plan, name) for name in plan.choices)]
    rows = [[label, *cells] for label, *cells in zip(labels, *columns, strict=True)]
    return [row for row in rows if any(cell.strip("–/ ") for cell in row[1:])]


def shown_metrics(plan: Plan) -> list[str]:
    """All but ITL, whose mean is TPOT; it is shown where a budget asks for it."""
    asked = {key.split("_")[0] for budget in plan.budgets.values() if not isinstance(budget, str) for key in budget}
    return [metric for metric in METRICS if metric != "itl" or metric in asked]


def prediction(plan: Plan) -> list[list[str]]:
    """Rows of the predicted table, one a draft length, headings first; the last column names who chose it."""
    return [
        ["draft_len", "tokens/round", "round ms", "TPOT ms", "speedup", "measured", "chosen for"],
        *(
            [
                "off" if candidate.draft_len == 0 else str(candidate.draft_len),
                f"{candidate.tokens_per_round:.2f}",
                number(candidate.round_ms),
                number(candidate.tpot_ms),
                f"{candidate.speedup:.2f}x",
                interval_words(candidate.replayed) if candidate.replayed else "",
                ", ".join(chosen_for(plan, candidate.draft_len)),
            ]
            for candidate in plan.candidates
        ),
    ]


def chosen_for(plan: Plan, draft_len: int) -> list[str]:
    """The budgets whose policy drafts ``draft_len`` tokens for at least some requests."""
    return [
        name for name, choice in plan.choices.items() if draft_len in {band.draft_len for band in choice.policy.bands}
    ]


def _off_column(plan: Plan) -> list[str]:
    off = plan.off
    return [
        "off",
        "the target alone",
        "",
        number(off.output_tokens_per_s),
        "1",
        "",
        *(quantiles(off, metric) for metric in shown_metrics(plan)),
        f"{off.tokens_per_round:.2f}",
        "",
        str(off.requests),
    ]


def _choice_column(plan: Plan, name: str) -> list[str]:
    choice = plan.choices[name]
    measured = choice.measured
    return [
        name,
        policy_words(choice),
        budget_words(plan, name),
        number(measured.output_tokens_per_s),
        interval_words(choice.speedup_over_off),
        _goodput_words(plan, name),
        *(quantiles(measured, metric) for metric in shown_metrics(plan)),
        _rounds_words(choice),
        acceptance_words(measured),
        str(measured.requests),
    ]


def policy_words(choice: Choice) -> str:
    """The policy, and what is wrong with it."""
    return str(choice.policy) if choice.confirmed else f"{choice.policy} (unconfirmed)"


def budget_words(plan: Plan, name: str) -> str:
    """Each limit of a budget with what was measured against it, one a line."""
    choice, asked = plan.choices[name], plan.budgets.get(name)
    verdict = "met" if choice.meets_budget else "NOT met"
    if asked is None:
        return verdict
    if isinstance(asked, str):
        return f"{asked}: {verdict}"
    return "\n".join([*(_limit_words(choice.measured, key, limit) for key, limit in asked.items()), verdict])


def _limit_words(measured: Measured, key: str, limit: float) -> str:
    quantile = key.removesuffix("_ms")
    value = measured.quantiles_ms.get(quantile)
    return f"{quantile} {ABSENT if value is None else number(value)} of {limit:g} ms"


def interval_words(interval: Interval) -> str:
    """``2.30x [2.21, 2.40]``, or ``1`` where nothing was compared."""
    if interval.low == interval.high == 1:
        return "1"
    return f"{interval.value:.2f}x [{interval.low:.2f}, {interval.high:.2f}]"


def _goodput_words(plan: Plan, name: str) -> str:
    chosen, off = (measured.goodput_per_s.get(name) for measured in (plan.choices[name].measured, plan.off))
    if chosen is None:
        return ABSENT
    return number(chosen) if off is None else f"{number(chosen)} (off {number(off)})"


def quantiles(measured: Measured, metric: str) -> str:
    """``12.1/15.0/–``: p50, p95, p99 in ms; a dash where the sample is too small."""
    values = [measured.quantiles_ms.get(f"{metric}_{percentile}") for percentile in PERCENTILES]
    return "/".join(ABSENT if value is None else number(value) for value in values)


def _rounds_words(choice: Choice) -> str:
    words = f"{choice.measured.tokens_per_round:.2f}"
    if not choice.policy.is_off:
        words += f", predicted {choice.predicted_tokens_per_round:.2f}"
    return words if choice.confirmed else f"{words} (unconfirmed)"


def measured_on(plan: Plan) -> list[tuple[str, str]]:
    """Pair, trace and evidence by digest, how many requests, then the environment."""
    return [
        ("pair", plan.pair_digest[:16]),
        ("trace", plan.trace_digest[:16]),
        ("evidence", plan.evidence_digest[:16]),
        ("requests", ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in plan.requests.items())),
        *plan.environment.items(),
    ]


def baseline_facts(baseline: Measurement) -> list[tuple[str, str]]:
    """Figures of a measurement by name; one that is not there is left out."""
    measured = baseline.measured
    named = [
        ("output tokens/s", number(measured.output_tokens_per_s)),
        *((f"{word} {'/'.join(PERCENTILES)} ms", quantiles(measured, metric)) for metric, word in METRICS.items()),
        ("requests", f"{measured.requests}: {_counts(baseline.outcomes)}"),
        ("left out", _counts(baseline.left_out)),
        ("sent late, ms", ", ".join(f"{name} {number(value)}" for name, value in baseline.lag_ms.items())),
    ]
    return [(name, words) for name, words in named if words.strip("–/")]


def _counts(named: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in named.items())


def replays(measurements: Sequence[Measurement]) -> list[list[str]]:
    """Rows of every replay that was kept, headings first; latencies are p50/p95/p99 in ms."""
    return [
        ["replay", "arrivals", "requests", "tokens/s", "TTFT ms", "TPOT ms"],
        *(
            [
                f"{one.graph} {one.measured.policy}{PARTIAL if one.interrupted else ''}",
                one.arrivals,
                str(one.measured.requests),
                number(one.measured.output_tokens_per_s),
                *(quantiles(one.measured, metric) for metric in ("ttft", "tpot")),
            ]
            for one in measurements
        ),
    ]


def acceptance_words(measured: Measured) -> str:
    """Bars of the acceptance per position with its first and last share."""
    shares = measured.acceptance_per_position
    if not shares:
        return ABSENT
    ends = f"{shares[0]:.2f}" if len(shares) == 1 else f"{shares[0]:.2f} → {shares[-1]:.2f}"
    return f"{bars(shares)} {ends}"
