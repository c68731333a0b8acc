"""Proves a rendered repository before a server meets it: a server given a bad one may hang for ever."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from specbuild.engine import Engine, Engines
from specbuild.errors import Fault, ProfileError, RepositoryError
from specbuild.plan import Plan
from specbuild.triton_repo import config
from specbuild.triton_repo.layout import MANIFEST, VERSION, RepositoryManifest
from specbuild.triton_repo.models.speculate.settings import DRAFT, PLAN, SETTINGS, TARGET, Settings

RENDER = "run specbuild render again"


def check(folder: Path) -> RepositoryManifest:
    """Check a repository; its manifest where nothing is wrong.

    Raises RepositoryError with every fault at once.
    """
    try:
        manifest = RepositoryManifest.read(folder / MANIFEST)
    except ProfileError as error:
        fix = "name a folder that specbuild render wrote"
        raise RepositoryError("is not a rendered repository", where=str(folder), fix=fix) from error
    faults = [*changed_files(folder, manifest)]
    for model in manifest.models:
        faults += _model_faults(folder, model, manifest.files)
    if faults:
        raise RepositoryError(faults)
    return manifest


def changed_files(folder: Path, manifest: RepositoryManifest) -> Iterator[Fault]:
    """Files that are missing or are not what was rendered. A changed config is judged by what it says instead."""
    for name, digest in manifest.files.items():
        path = folder / name
        if not path.is_file():
            yield Fault("is missing", str(path), RENDER)
        elif path.name != config.FILE and _sha256(path) != digest:
            yield Fault("is not the file that was rendered", str(path), RENDER)
    known = {folder / name for name in (*manifest.files, MANIFEST)}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in known and "__pycache__" not in path.parts:
            yield Fault("does not belong here", str(path), f"move it away, or {RENDER}")


def _model_faults(folder: Path, model: str, listed: Mapping[str, str]) -> Iterator[Fault]:
    yield from config.faults(folder / model / config.FILE, model)
    version = folder / model / VERSION
    for name in ("model.py", SETTINGS, PLAN):
        if f"{model}/{VERSION}/{name}" not in listed:
            yield Fault(f"lists no {name}, without which the server waits for ever", str(folder / MANIFEST), RENDER)
    try:
        settings = Settings.read(version)
        yield from _plan_faults(Plan.read(version / PLAN), settings, version)
        yield from _engine_faults(settings, version)
    except ProfileError as error:
        yield from error.faults
    except (OSError, ValueError, TypeError, KeyError) as error:
        yield Fault(f"cannot be read: {error}", str(version / SETTINGS), RENDER)


def _plan_faults(plan: Plan, settings: Settings, version: Path) -> Iterator[Fault]:
    where = str(version / PLAN)
    for name in ("pair_digest", "numerics", "graph"):
        if getattr(plan, name) != getattr(settings, name):
            yield Fault(f"{name} is {getattr(plan, name)}, {SETTINGS} says {getattr(settings, name)}", where, RENDER)
    if not plan.choices:
        yield Fault("the plan has no budget", where, RENDER)
    for name, choice in plan.choices.items():
        if choice.policy.max_draft_len > settings.max_draft_len:
            yield Fault(f"budget {name!r} drafts more than the {settings.max_draft_len} tokens allowed", where, RENDER)


def _engine_faults(settings: Settings, version: Path) -> Iterator[Fault]:
    target = Engine.open(version / TARGET)
    if settings.max_draft_len:
        engines = Engines(target, Engine.open(version / DRAFT))
        if engines.digest != settings.pair_digest:
            yield Fault("the engines are not the pair that was tuned", str(version / "engines"), RENDER)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
