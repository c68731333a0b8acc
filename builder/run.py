"""The verbs of the builder: check a pair, compile it, find what is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from specbuild.builder import memory, preflight, steps, toolchain
from specbuild.builder.digests import DigestCache
from specbuild.builder.steps import BuildStep, BuildSteps, ExporterChoice
from specbuild.console import say
from specbuild.engine import Engine, Engines
from specbuild.errors import BuildError, ProfileError
from specbuild.pair import Pair
from specbuild.profile import Profile
from specbuild.record import Record
from specbuild.store import Store, disk_error
from specbuild.units import MIB

LOCK = "engines.json"


class Lock(Record):
    """What ``compile`` made of a profile: the engines' keys, and the exporter that was asked for."""

    schema_version: Literal[1] = 1
    exporter: ExporterChoice
    target: str
    draft: str


@dataclass(frozen=True)
class Prepared:
    """A checked pair, and the steps that build it."""

    pair: Pair
    steps: BuildSteps
    exporter: ExporterChoice


def check(profile: Profile, *, store: Path | None = None, allow_download: bool = False) -> Pair:
    """The pair of a profile after every check; it holds what does not stop a build.

    Raises ProfileError, ToolchainError or PairError, each with every fault at once.
    """
    cache = DigestCache(Store(store).digests)
    try:
        return preflight.check(profile, cache.sha256, allow_download=allow_download).pair
    finally:
        cache.save()


def prepare(
    profile: Profile, home: Store, *, allow_download: bool = False, exporter: ExporterChoice = "auto"
) -> Prepared:
    """Check a profile and derive what has to be built; builds nothing."""
    cache = DigestCache(home.digests)
    try:
        sources = preflight.check(profile, cache.sha256, allow_download=allow_download)
    finally:
        cache.save()
    derived = steps.derive(profile, sources.pair, toolchain.read(), exporter=exporter, calibration=sources.calibration)
    return Prepared(sources.pair, derived, exporter)


def ensure(step: BuildStep, home: Store, *, force: bool = False) -> Engine:
    """The engine of a step, built if it is not in the store. Raises BuildError or ToolchainError."""
    engine = None if force else home.find(step.key)
    if engine is not None:
        say(f"  ✓ {step.title}: already built")
        return engine
    home.require(_space(step))
    with home.building(step.key, force=force) as folder:
        if folder is not None:
            from specbuild.builder.stacks import openvino

            openvino.build(step, folder)
    engine = home.find(step.key)
    if engine is None:
        raise BuildError("the engine is not there after its build", where=str(home.root))
    return engine


def build(profile: Profile, prepared: Prepared, home: Store, *, force: bool = False) -> Engines:
    """The engines of a prepared profile, built where they are not in the store; remembered for ``find_engines``."""
    built = {step.key: ensure(step, home, force=force) for step in prepared.steps.distinct()}
    lock = Lock(exporter=prepared.exporter, target=prepared.steps.target.key, draft=prepared.steps.draft.key)
    path = profile.out / LOCK
    if _lock(profile) != lock:
        try:
            lock.write(path)
        except OSError as error:
            raise disk_error(error, path) from error
    return Engines(built[lock.target], built[lock.draft])


def compile(  # noqa: A001 - the verb of this trade
    profile: Profile,
    *,
    store: Path | None = None,
    allow_download: bool = False,
    exporter: ExporterChoice = "auto",
    force: bool = False,
) -> Engines:
    """Both engines of a profile, built where they are not in the store.

    Raises ProfileError, PairError, ToolchainError or BuildError.
    """
    home = Store(store)
    prepared = prepare(profile, home, allow_download=allow_download, exporter=exporter)
    return build(profile, prepared, home, force=force)


def find_engines(profile: Profile, *, store: Path | None = None) -> Engines:
    """The engines that ``compile`` made of a profile as it and its models are now.

    Raises BuildError where one is missing or damaged, ProfileError or ToolchainError where a model cannot be read.
    """
    home = Store(store)
    cache = DigestCache(home.digests)
    try:
        sources = preflight.read(profile, cache.sha256)
    finally:
        cache.save()
    lock = _lock(profile)
    derived = steps.derive(
        profile,
        sources.pair,
        toolchain.read(),
        exporter=lock.exporter if lock else "auto",
        calibration=sources.calibration,
    )
    target, draft = home.find(derived.target.key), home.find(derived.draft.key)
    if target is None or draft is None:
        missing = derived.target if target is None else derived.draft
        raise BuildError(
            f"not compiled yet: {missing.title}",
            where=str(home.root),
            fix=f"run specbuild compile {profile.path or 'PROFILE'}",
        )
    return Engines(target, draft)


def _space(step: BuildStep) -> int:
    """Bytes that a build writes at most: the engine, its tokenizer, and optimum-intel's float32 export beside it."""
    scratch = 4 * step.facts.parameters if step.exporter == "optimum" else 0
    return memory.weight_bytes(step.facts, step.precision) + scratch + 64 * MIB


def _lock(profile: Profile) -> Lock | None:
    try:
        return Lock.read(profile.out / LOCK)
    except ProfileError:
        return None
