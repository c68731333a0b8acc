"""A profile, its trace and engines that exist in virtual time only."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml
from virtual_session import VirtualClock, VirtualSession, agreement, answer

from specbuild.engine import Engine, Engines, Manifest
from specbuild.profile import Profile
from specbuild.runtime.tools import Tools

VOCAB = 1000


def quiet(running: int, draft_len: int) -> float:
    """Memory-bound at one request, compute-bound at many: the draft pays at low load only."""
    return max(20, 3 * running * (1 + draft_len)) + 1.5 * draft_len


class Words:
    """A tokenizer: a token a letter."""

    has_chat_template = False

    def encode(self, text, add_special_tokens=True):
        return [2 + (ord(letter) * 31 + place) % (VOCAB - 2) for place, letter in enumerate(text)]


class VirtualScorer:
    """Logits that agree with the virtual target, or with the virtual draft."""

    def __init__(self, rate):
        self.rate = rate

    def score(self, tokens, start=0):
        prompt, rows = tokens[: start + 1].tolist(), len(tokens) - start
        said = answer(prompt, 4096)[:rows]
        if self.rate is not None:
            agree = agreement(prompt, 4096, self.rate)[:rows]
            said = np.where(agree, said, (said + 1) % VOCAB)
        logits = np.zeros((rows, VOCAB), np.float32)
        logits[np.arange(rows), said] = 9.0
        for first in range(0, rows, 5):
            yield logits[first : first + 5]


@dataclass
class World:
    """What the virtual engines are like; ``spoil`` changes what a session answers."""

    round_ms: dict = field(default_factory=lambda: {"fused": quiet, "orchestrated": lambda r, k: quiet(r, k) + 3})
    rate: float = 0.8
    noise: float = 0.05
    seed: int = 0
    session: type = VirtualSession
    clock: VirtualClock = field(default_factory=VirtualClock)
    opened: list = field(default_factory=list)

    def tools(self) -> Tools:
        return Tools(
            session=self._open,
            scorer=lambda folder, numerics, tokens: VirtualScorer(self.rate if folder.name == "draft" else None),
            tokenizer=lambda folder: Words(),
            clock=self.clock,
        )

    def _open(self, spec):
        rng = np.random.default_rng([self.seed, len(self.opened)])
        formula = self.round_ms[spec.graph]
        session = self.session(
            self.clock,
            lambda running, k: formula(running, k) * rng.lognormal(0, self.noise),
            rate=self.rate,
            max_batch_size=spec.max_batch_size,
            graph=spec.graph,
            draft_cap=spec.max_draft_len,
        )
        self.opened.append(session)
        return session


def engines(folder: Path) -> Engines:
    """Folders with a config, and manifests that name them."""

    def engine(name):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        config = {
            "vocab_size": VOCAB,
            "max_position_embeddings": 8192,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "hidden_size": 8,
            "eos_token_id": 1,
        }
        (place / "config.json").write_text(json.dumps(config))
        manifest = Manifest(
            key=name, stack="openvino", precision="fp16", inputs={}, files={}, architecture="x", vocab_size=VOCAB,
            layers=2, kv_heads=2, head_dim=4, max_position=8192, parameters=1, weight_bytes=1, eos_ids=(1,),
            created="", seconds=0.0,
        )  # fmt: skip
        return Engine(place, manifest)

    return Engines(engine("target"), engine("draft"))


def profile(folder: Path, *, count: int = 200, traffic=None, request=None, **more) -> Profile:
    """A profile whose trace has ``count`` requests; ``request(i)`` adds fields to each."""
    rng = np.random.default_rng(5)
    lines = [
        {
            "id": f"r{i}",
            "arrival_s": round(float(i) * 0.5, 3),
            "prompt": f"request {i} " + "x" * int(rng.integers(1, 60)),
            "max_tokens": int(rng.integers(16, 80)),
        }
        | (request(i) if request else {})
        for i in range(count)
    ]
    (folder / "traffic.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    data = {
        "schema": 1,
        "name": "virtual",
        "target": {"model": "t", "precision": "fp16"},
        "draft": {"model": "d", "precision": "fp16"},
        "budgets": {"fast": "max_throughput"},
        "traffic": {"file": "traffic.jsonl"} | (traffic or {}),
    } | more
    (folder / "profile.yaml").write_text(yaml.safe_dump(data))
    return Profile.load(folder / "profile.yaml")
