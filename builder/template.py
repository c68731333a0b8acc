"""A commented profile for a pair, to start from."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from specbuild.builder import facts
from specbuild.errors import ProfileError
from specbuild.profile import Limits
from specbuild.record import write_atomically

_TEXT = """\
# What specbuild builds, measures and serves. Every key: specbuild check names what is wrong, with its line.
name: {name}
numerics: fast            # exact: greedy output is identical to the target alone in every request; slower

target:
  model: {target}
  precision: fp16         # fp16 | bf16 | int8 | int4
draft:                    # must share the target's tokenizer
  model: {draft}
  precision: fp16

limits:
  max_batch_size: 8       # requests at once
  max_input_len: {max_input_len}     # tokens of a prompt
  max_seq_len: {max_seq_len}       # tokens of a prompt and its output
  max_draft_len: {max_draft_len}        # longest draft of one round
  kv_cache_gib: 1         # KV cache pool of each model

budgets:                  # a plan is chosen for each; metrics: ttft, tpot, itl, e2e at p50, p90, p95, p99
  interactive:
    tpot_p95_ms: 50
  batch: max_throughput

traffic:
  file: {traffic}   # recorded requests, JSONL: {{"id": "1", "arrival_s": 0.0, "prompt": "...", "max_tokens": 64}}
  arrivals: closed        # closed: a new request when one ends; recorded: at the trace's own times
  concurrency: 1
"""


def write_profile(target: str, draft: str, output: Path, *, traffic: str, force: bool = False) -> Path:
    """Write a profile for two models, each a folder or a hub id, with limits that both models hold.

    Paths are written relative to the profile. Raises ProfileError where it is there already (without ``force``), or
    a folder that is named is no model.
    """
    if output.exists() and not force:
        raise ProfileError(
            "the profile is there already", where=str(output), fix="name another with -o, or add --force"
        )
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(target).name)[:64].strip("-._") or "pair"
    folder = output.resolve().parent
    longest = min(2048, *(_max_position(model) - Limits().max_draft_len for model in (target, draft)))
    text = _TEXT.format(
        name=name,
        target=_path(target, folder),
        draft=_path(draft, folder),
        traffic=json.dumps(os.path.relpath(traffic, folder)),
        max_seq_len=longest,
        max_input_len=longest * 3 // 4,
        max_draft_len=Limits().max_draft_len,
    )
    write_atomically(output, text.encode())
    return output


def _max_position(model: str) -> int:
    """Positions of a model that is a folder; a hub id is not looked up here and counts as long enough."""
    if not Path(model).is_dir():
        return 1 << 20
    return facts.read(Path(model), digest=lambda _: "").max_position


def _path(model: str, folder: Path) -> str:
    """A folder relative to the profile's unless it was given from the root; a hub id as it is. JSON is YAML."""
    is_relative_folder = Path(model).is_dir() and not Path(model).is_absolute()
    return json.dumps(os.path.relpath(model, folder) if is_relative_folder else model)
