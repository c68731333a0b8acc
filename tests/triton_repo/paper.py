"""Profiles, engines and plans on paper: files and data that are right in form, and never run."""

from __future__ import annotations

import hashlib
from pathlib import Path

from specbuild.engine import MANIFEST, Engine, Engines, Manifest
from specbuild.plan import Choice, Graph, Interval, Measured, Plan, PolicySpec

PROFILE = """\
name: tiny
numerics: exact
target: {model: target, precision: fp16}
draft: {model: draft, precision: fp16}
budgets: {chat: {tpot_p95_ms: 40}, batch: max_throughput}
traffic: {file: traffic.jsonl}
limits: {max_batch_size: 4, max_input_len: 512, max_seq_len: 1024, max_draft_len: 6}
"""


def write_profile(folder: Path) -> Path:
    """A profile whose models are not there."""
    file = folder / "profile.yaml"
    file.write_text(PROFILE)
    return file


def write_engines(folder: Path) -> Engines:
    """Two engines whose files are not models."""
    return Engines(_engine(folder / "target", "target"), _engine(folder / "draft", "draft"))


def _engine(folder: Path, role: str) -> Engine:
    folder.mkdir(parents=True)
    files = {"openvino_model.xml": f"<{role}/>".encode(), "openvino_model.bin": role.encode() * 1000}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    manifest = Manifest(
        key=hashlib.sha256(role.encode()).hexdigest(),
        stack="openvino",
        precision="fp16",
        inputs={"role": role},
        files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        architecture="LlamaForCausalLM",
        vocab_size=2048 if role == "target" else 2000,
        layers=2,
        kv_heads=2,
        head_dim=64,
        max_position=2048,
        parameters=1000,
        weight_bytes=2000,
        eos_ids=(0, 7),
        created="2026-01-01T00:00:00+00:00",
        seconds=1.0,
    )
    manifest.write(folder / MANIFEST)
    return Engine.open(folder)


def plan_of(engines: Engines, policies: dict[str, PolicySpec], *, graph: Graph = "orchestrated") -> Plan:
    """A plan with these policies; its figures are made up and nothing here reads them."""
    return Plan(
        key="0" * 64,
        profile="tiny",
        pair_digest=engines.digest,
        trace_digest="1" * 64,
        numerics="exact",
        graph=graph,
        arrivals="closed, 1 at once",
        requests={"trace": 8, "baseline": 4, "held_out": 4},
        off=_measured(PolicySpec.fixed(0)),
        candidates=(),
        choices={name: _choice(policy) for name, policy in policies.items()},
        evidence_digest="2" * 64,
        environment={},
        created="2026-01-01T00:00:00+00:00",
    )


def _measured(policy: PolicySpec) -> Measured:
    return Measured(
        policy=policy,
        requests=4,
        output_tokens_per_s=10.0,
        quantiles_ms={},
        goodput_per_s={},
        acceptance_per_position=(),
        acceptance_length=1.0,
        tokens_per_round=1.0,
    )


def _choice(policy: PolicySpec) -> Choice:
    return Choice(
        policy=policy,
        meets_budget=True,
        measured=_measured(policy),
        speedup_over_off=Interval(value=1.0, low=1.0, high=1.0),
        predicted_tokens_per_round=1.0,
        confirmed=True,
        reasons=(),
    )
