"""``specbuild check``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specbuild.cli.options import json_option, profile_argument, store_option
from specbuild.console import result, result_json

if TYPE_CHECKING:
    from specbuild.pair import ModelFacts, Pair

_MARK = {"warning": "!", "info": "·"}


@click.command("check")
@profile_argument
@store_option
@json_option
@click.option("--download", is_flag=True, help="Fetch models that are named by hub id and not cached.")
def command(profile: Path, store: Path | None, as_json: bool, download: bool) -> None:
    """Check PROFILE and its pair before anything is built: files, tokenizers, context, memory.

    Exit codes: 2 a file is missing or damaged, 3 the two models do not go together, 4 a model is not on this machine.
    The rules are listed in docs/checks.md.
    """
    from specbuild import builder
    from specbuild.profile import Profile

    loaded = Profile.load(profile)
    pair = builder.check(loaded, store=store, allow_download=download)
    if as_json:
        result_json(_as_json(loaded.name, pair))
    else:
        result(_as_text(loaded.name, pair))


def _as_json(name: str, pair: Pair) -> dict[str, Any]:
    """``profile``, ``ok`` (true: faults end the command), the two models, and ``findings`` that do not stop a build."""
    return {
        "profile": name,
        "ok": True,
        "target": _model(pair.target),
        "draft": _model(pair.draft),
        "findings": [asdict(finding) for finding in pair.findings],
    }


def _model(facts: ModelFacts) -> dict[str, Any]:
    return {
        "folder": str(facts.folder),
        "architecture": facts.architecture,
        "parameters": facts.parameters,
        "layers": facts.layers,
        "hidden_size": facts.hidden_size,
        "vocab_size": facts.vocab_size,
        "max_position": facts.max_position,
        "eos_ids": list(facts.eos_ids),
        "files": dict(facts.files),
    }


def _as_text(name: str, pair: Pair) -> str:
    lines = [f"{name}: the pair goes together"]
    for role, facts in (("target", pair.target), ("draft", pair.draft)):
        size = f"{facts.parameters / 1e6:,.1f} M parameters"
        lines.append(f"  {role:<7} {facts.architecture}, {facts.layers} layers x {facts.hidden_size}, {size}")
    for finding in pair.findings:
        lines.append(f"  {_MARK[finding.severity]} [{finding.rule}] {finding.what}")
        lines += [f"      → {finding.fix}"] if finding.fix else []
    return "\n".join(lines)
