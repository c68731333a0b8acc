"""``specbuild compile``: build both engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specbuild.cli.options import json_option, profile_argument, store_option
from specbuild.clock import now_ns
from specbuild.console import result, result_json, say
from specbuild.units import NS_PER_S, human_bytes, human_seconds

if TYPE_CHECKING:
    from specbuild.builder.steps import ExporterChoice
    from specbuild.engine import Engine, Engines


@click.command("compile")
@profile_argument
@store_option
@json_option
@click.option("--dry-run", is_flag=True, help="Print the steps and stop.")
@click.option("--explain", is_flag=True, help="Say for each step whether it is built, and what changed if not.")
@click.option("--download", is_flag=True, help="Fetch models that are named by hub id and not cached.")
@click.option(
    "--exporter",
    type=click.Choice(["auto", "graph", "optimum"]),
    default="auto",
    show_default=True,
    help="graph: our own, without torch; optimum: optimum-intel; auto: graph where it knows the model.",
)
@click.option("--force", is_flag=True, help="Build again what is already built.")
def command(
    profile: Path,
    store: Path | None,
    as_json: bool,
    dry_run: bool,
    explain: bool,
    download: bool,
    exporter: ExporterChoice,
    force: bool,
) -> None:
    """Build the engines of PROFILE, each once, where they are not in the store already."""
    from specbuild.builder import run
    from specbuild.builder.explain import explained
    from specbuild.profile import Profile
    from specbuild.store import Store

    begun = now_ns()
    home = Store(store)
    loaded = Profile.load(profile)
    prepared = run.prepare(loaded, home, allow_download=download, exporter=exporter)
    for finding in prepared.pair.findings:
        if finding.severity == "warning":
            say(f"  ! [{finding.rule}] {finding.what}")
    decided = [explained(step, home, force=force) for step in prepared.steps.distinct()]
    reasons = "\n".join(decision.as_text() for decision in decided)
    steps = [decision.as_json() for decision in decided]
    if dry_run:
        _show({"steps": steps}, reasons, as_json)
        return
    if explain:
        say(reasons)
    engines = run.build(loaded, prepared, home, force=force)
    seconds = (now_ns() - begun) / NS_PER_S
    _show(_as_json(engines, steps, seconds), _as_text(engines, seconds), as_json)


def _show(value: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        result_json(value)
    else:
        result(text)


def _as_json(engines: Engines, steps: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """``steps`` as in --dry-run; of each engine its key, folder, precision, bytes of weights and notes."""

    def engine(one: Engine) -> dict[str, Any]:
        manifest = one.manifest
        return {
            "key": manifest.key,
            "folder": str(one.folder),
            "precision": manifest.precision,
            "weight_bytes": manifest.weight_bytes,
            "notes": list(manifest.notes),
        }

    return {
        "pair_digest": engines.digest,
        "target": engine(engines.target),
        "draft": engine(engines.draft),
        "steps": steps,
        "seconds": round(seconds, 3),
    }


def _as_text(engines: Engines, seconds: float) -> str:
    lines = []
    for role, engine in (("target", engines.target), ("draft", engines.draft)):
        manifest = engine.manifest
        size = human_bytes(manifest.weight_bytes)
        lines.append(f"{role:<7} {manifest.precision:<5} {size:>10}  {engine.folder}")
        lines += [f"          {note}" for note in manifest.notes]
    lines.append(f"both engines are ready ({human_seconds(seconds)})")
    return "\n".join(lines)
