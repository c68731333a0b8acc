"""From a profile to two engines: facts, checks, steps, stacks. The three verbs import what they need when called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specbuild.builder.steps import ExporterChoice
    from specbuild.engine import Engines
    from specbuild.pair import Pair
    from specbuild.profile import Profile


def check(profile: Profile, *, store: Path | None = None, allow_download: bool = False) -> Pair:
    """See ``specbuild.builder.run.check``."""
    from specbuild.builder import run

    return run.check(profile, store=store, allow_download=allow_download)


def compile(  # noqa: A001 - the verb of this trade
    profile: Profile,
    *,
    store: Path | None = None,
    allow_download: bool = False,
    exporter: ExporterChoice = "auto",
    force: bool = False,
) -> Engines:
    """See ``specbuild.builder.run.compile``."""
    from specbuild.builder import run

    return run.compile(profile, store=store, allow_download=allow_download, exporter=exporter, force=force)


def find_engines(profile: Profile, *, store: Path | None = None) -> Engines:
    """See ``specbuild.builder.run.find_engines``."""
    from specbuild.builder import run

    return run.find_engines(profile, store=store)
