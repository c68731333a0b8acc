"""An out folder as ``tune`` leaves it, made of round numbers: what the tests of the report show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from specbuild.evidence import Evidence
from specbuild.measurement import Measurement, Measurements
from specbuild.plan import Band, Candidate, Choice, Interval, Measured, Plan, PolicySpec
from specbuild.profile import Budget
from specbuild.report import BASELINE, EVIDENCE, PLAN, REPLAYS, STEP_TIMES
from specbuild.report.terminal import plan_table

PAIR, TRACE = "a1" * 32, "b2" * 32
ENVIRONMENT = {
    "cpu": "Example CPU @ 2.60GHz",
    "cores": "2",
    "load_average": "0.31 0.22 0.10",
    "python": "3.11.7",
    "openvino": "2026.4.1",
}


REPLAYED = {5: Interval(value=2.3, low=2.21, high=2.4), 6: Interval(value=2.29, low=2.18, high=2.41)}


def measured(draft_len: int = 0, *, tokens_per_s: float = 41.234, scale: float = 1.0) -> Measured:
    agrees = 0.84
    per_position = tuple(agrees * 0.95**place for place in range(draft_len))
    length = 1 + sum(float(np.prod(per_position[: place + 1])) for place in range(draft_len))
    return Measured(
        policy=PolicySpec.fixed(draft_len),
        requests=24,
        output_tokens_per_s=tokens_per_s,
        quantiles_ms={
            "ttft_p50": 120.2, "ttft_p95": 310.5, "tpot_p50": 24.1 * scale, "tpot_p95": 26.0 * scale,
            "itl_p50": 24.0, "itl_p95": 31.0, "chunk_p50": 24.0 * (1 + draft_len / 8), "chunk_p95": 40.0,
             "e2e_p50": 1550.0 * scale, "e2e_p95": 3000.0 * scale,
        },
        goodput_per_s={"interactive": 0.4 if draft_len == 0 else 1.4, "batch": 0.66, "tight": 0.0},
        acceptance_per_position=per_position,
        acceptance_length=length,
        tokens_per_round=length,
    )  # fmt: skip


def candidates(gain: float = 0.84) -> tuple[Candidate, ...]:
    def one(draft_len: int) -> Candidate:
        tokens, round_ms = sum(gain**place for place in range(draft_len + 1)), 24.1 + 3.0 * draft_len
        return Candidate(
            draft_len=draft_len,
            tokens_per_round=tokens,
            round_ms=round_ms,
            tpot_ms=round_ms / tokens,
            speedup=24.1 * tokens / round_ms,
            replayed=REPLAYED.get(draft_len),
        )

    return tuple(one(draft_len) for draft_len in range(9))


def choice(measured: Measured, **changes: Any) -> Choice:
    fields: dict[str, Any] = {
        "policy": measured.policy,
        "meets_budget": True,
        "measured": measured,
        "speedup_over_off": Interval(value=1.0, low=1.0, high=1.0),
        "predicted_tokens_per_round": 1.0,
        "confirmed": True,
        "reasons": (
            "off: at best (draft_len 2) a round takes 31 ms for 2.1 tokens, 14.8 ms a token against 13.9 alone",
        ),
    }
    return Choice(**{**fields, **changes})


def choices() -> dict[str, Choice]:
    """One that speculates, one that is off, one that fails its budget and its prediction."""
    fast = measured(5, tokens_per_s=94.8, scale=0.42)
    gain = Interval(value=2.3, low=2.21, high=2.4)
    return {
        "interactive": choice(
            fast,
            speedup_over_off=gain,
            predicted_tokens_per_round=3.61,
            reasons=(
                "draft_len 5: predicted 2.50x, measured 2.30x [2.21, 2.40] over off",
                "draft_len 6 predicts 2.52x, but its measured interval overlaps that of 5 and ties go to the smaller",
            ),
        ),
        "batch": choice(measured()),
        "tight": choice(
            fast,
            meets_budget=False,
            confirmed=False,
            speedup_over_off=gain,
            predicted_tokens_per_round=5.1,
            reasons=("predicted 5.10 tokens a round, measured 3.60: off by 42%, more than the stated 5%",),
        ),
    }


BUDGETS: dict[str, Budget] = {
    "interactive": {"tpot_p95_ms": 40, "ttft_p50_ms": 500},
    "batch": "max_throughput",
    "tight": {"tpot_p95_ms": 5},
}


def plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "key": "d4" * 32,
        "profile": "made-pair",
        "pair_digest": PAIR,
        "trace_digest": TRACE,
        "numerics": "exact",
        "graph": "orchestrated",
        "arrivals": "closed, 1 at once",
        "requests": {"trace": 48, "baseline": 24, "held_out": 24},
        "off": measured(),
        "candidates": candidates(),
        "choices": choices(),
        "budgets": BUDGETS,
        "evidence_digest": evidence().digest(),
        "environment": ENVIRONMENT,
        "graphs_compared": ("fused: 91.2 tokens/s at draft_len 5", "orchestrated: 94.8 tokens/s at draft_len 5"),
        "notes": ("prompts under 20 tokens were too few for a band of their own",),
        "created": "2026-11-30T18:00:00+00:00",
    }
    return Plan(**{**fields, **changes})


def only(name: str) -> Plan:
    """The sample plan with one of its budgets."""
    return plan(choices={name: choices()[name]}, budgets={name: BUDGETS[name]})


def banded() -> PolicySpec:
    return PolicySpec(bands=(Band(max_prompt_len=20, draft_len=2), Band(max_prompt_len=None, draft_len=5)))


def baseline(**changes: Any) -> Measurement:
    fields: dict[str, Any] = {
        "profile": "made-pair",
        "pair_digest": PAIR,
        "trace_digest": TRACE,
        "numerics": "exact",
        "graph": "orchestrated",
        "arrivals": "closed, 1 at once",
        "measured": measured(tokens_per_s=41.9),
        "outcomes": {"length": 46, "stop": 2},
        "left_out": {"prompt longer than max_input_len": 3},
        "lag_ms": {"p50": 0.1, "max": 0.6},
        "environment": ENVIRONMENT,
        "created": "2026-11-30T17:50:00+00:00",
    }
    return Measurement(**{**fields, **changes})


def evidence() -> Evidence:
    """Three requests: short and long prompts, the last one sampled."""
    lengths, random = [10, 40, 150], np.random.default_rng(7)
    agree = random.random(sum(lengths)) < 0.8
    return Evidence(
        offsets=np.cumsum([0, *lengths], dtype=np.int64),
        prompt_len=np.array([12, 60, 1500], np.int32),
        max_tokens=np.array(lengths, np.int32),
        temperature=np.array([0, 0, 0.8], np.float32),
        agree=agree,
        accept=np.where(agree, 0.9, 0.3).astype(np.float32),
        entropy=random.random(sum(lengths), np.float32),
        identity={"pair": PAIR, "trace": TRACE},
    )


def step_times() -> dict[str, Any]:
    lengths, batches = [0, 1, 2, 4, 8], [1, 4]
    return {
        "schema_version": 1,
        "pair_digest": PAIR,
        "numerics": "exact",
        "environment": ENVIRONMENT,
        "graphs": {
            "orchestrated": {
                "schema_version": 1,
                "graph": "orchestrated",
                "batch_sizes": batches,
                "draft_lens": lengths,
                "median_ms": [[24.1 * batch**0.5 + 3.0 * length * batch for length in lengths] for batch in batches],
                "spread": [[0.05 for _ in lengths] for _ in batches],
                "rounds": [[16 for _ in lengths] for _ in batches],
            }
        },
    }


def write(out: Path, made: Plan | None = None) -> Path:
    """Everything that a report can read."""
    (made or plan()).write(out / PLAN)
    baseline().write(out / BASELINE)
    evidence().write(out / EVIDENCE)
    Measurements(measurements=(baseline(), baseline(measured=measured(5)), baseline(measured=measured(6)))).write(
        out / REPLAYS
    )
    baseline(measured=measured(3), interrupted=True).write(out / "bench_fused_draft_len_3.json")
    (out / STEP_TIMES).write_text(json.dumps(step_times()), encoding="utf-8")
    return out


if __name__ == "__main__":  # python tests/report/sample_plan.py > tests/report/plan.txt
    print(plan_table(plan()), end="")
