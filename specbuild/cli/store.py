"""``specbuild store``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specbuild.cli.options import json_option, store_option
from specbuild.console import result, result_json
from specbuild.units import human_bytes

if TYPE_CHECKING:
    from specbuild.store import Entry


@click.group("store")
def command() -> None:
    """List, verify and shrink the store of engines."""


@command.command("ls")
@store_option
@json_option
def ls(store: Path | None, as_json: bool) -> None:
    """List the engines, newest first."""
    from specbuild.store import Store

    home = Store(store)
    _show(home.root, home.ls(), as_json, "no engines")


@command.command("verify")
@store_option
@json_option
def verify(store: Path | None, as_json: bool) -> None:
    """Read every engine whole and compare it with its digests. Exit code 5: one is damaged."""
    from specbuild.errors import BuildError, Fault
    from specbuild.store import Store

    home = Store(store)
    entries = home.verify()
    damaged = [entry for entry in entries if entry.faults]
    if damaged:
        raise BuildError(
            Fault(f"engine {entry.key[:12]}: {fault}", str(home.root), "run specbuild compile again; it repairs")
            for entry in damaged
            for fault in entry.faults
        )
    _show(home.root, entries, as_json, "no engines")


@command.command("gc")
@store_option
@json_option
@click.option(
    "--keep",
    "keep",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PROFILE",
    help="Remove every engine that this profile does not use; repeat it to keep those of several.",
)
@click.option("--all", "everything", is_flag=True, help="Remove every engine.")
def gc(store: Path | None, as_json: bool, keep: tuple[Path, ...], everything: bool) -> None:
    """Remove damaged engines and what killed runs left; with --keep or --all, sound engines too."""
    from specbuild.builder import find_engines
    from specbuild.profile import Profile
    from specbuild.store import Store

    if keep and everything:
        raise click.UsageError("--keep and --all exclude each other")
    kept: set[str] | None = set() if everything else None
    for profile in keep:
        engines = find_engines(Profile.load(profile), store=store)
        kept = (kept or set()) | {engines.target.manifest.key, engines.draft.manifest.key}
    home = Store(store)
    _show(home.root, home.gc(kept), as_json, "nothing to remove")


def _show(root: Path, entries: list[Entry], as_json: bool, none: str) -> None:
    if as_json:
        result_json({"store": str(root), "engines": [_as_json(entry) for entry in entries]})
        return
    lines = [_as_text(entry) for entry in entries] or [none]
    lines.append(f"{human_bytes(sum(entry.bytes for entry in entries))} in {root}")
    result("\n".join(lines))


def _as_json(entry: Entry) -> dict[str, Any]:
    """``key``, ``bytes``, ``faults``, and of a readable engine its precision, architecture, source and time."""
    described: dict[str, Any] = {"key": entry.key, "bytes": entry.bytes, "faults": list(entry.faults)}
    if entry.engine:
        names = ("precision", "architecture", "parameters", "source", "created")
        described |= {name: getattr(entry.engine.manifest, name) for name in names}
    return described


def _as_text(entry: Entry) -> str:
    line = f"{entry.key[:12]} {human_bytes(entry.bytes):>10}"
    if entry.engine:
        manifest = entry.engine.manifest
        line += f"  {manifest.precision:<5} {manifest.architecture}  {manifest.created}  {manifest.source}"
    return line + "".join(f"\n             ! {fault}" for fault in entry.faults)
