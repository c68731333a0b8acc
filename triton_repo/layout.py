"""What a Triton model repository holds, decided before anything is written.

    <repository>/manifest.json                    every file → sha256
    <repository>/<model>/config.pbtxt
    <repository>/<model>/1/model.py               the served model
    <repository>/<model>/1/specbuild/...          the modules it needs, nothing else
    <repository>/<model>/1/session.json           limits, graph, numerics
    <repository>/<model>/1/plan.json              the plan whose policies it follows
    <repository>/<model>/1/engines/target, draft  the engines; no draft where every policy is off

Nothing in it points out of it, so it can be copied to any machine that has the engines' runtime.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from specbuild.engine import MANIFEST as ENGINE_MANIFEST
from specbuild.engine import Engine, Engines
from specbuild.errors import Fault
from specbuild.plan import Plan
from specbuild.profile import Profile
from specbuild.record import Record
from specbuild.triton_repo import config
from specbuild.triton_repo.closure import closure, source
from specbuild.triton_repo.models.speculate.settings import DRAFT, PLAN, SETTINGS, TARGET, Settings

MODEL = "specbuild.triton_repo.models.speculate.model"
MANIFEST = "manifest.json"
VERSION = "1"


class RepositoryManifest(Record):
    """What lies at the root of a rendered repository; Triton itself looks only at folders."""

    schema_version: Literal[1] = 1
    models: tuple[str, ...]
    files: dict[str, str]
    """Path below the repository → sha256, of every other file."""


@dataclass(frozen=True)
class Item:
    """One file: its content, or the file that it is a copy of."""

    path: str
    """Below the repository, with ``/``."""
    sha256: str
    content: bytes | None = field(default=None, repr=False)
    source: Path | None = None

    @classmethod
    def of(cls, path: str, content: bytes) -> Item:
        """A file whose content is at hand."""
        return cls(path, hashlib.sha256(content).hexdigest(), content)

    @property
    def size(self) -> int:
        """Bytes."""
        return self.source.stat().st_size if self.source else len(self.content or b"")


@dataclass(frozen=True)
class Repository:
    """A Triton model repository as data."""

    model_name: str
    items: tuple[Item, ...]

    @property
    def manifest(self) -> RepositoryManifest:
        """Its models and the digest of every file."""
        return RepositoryManifest(models=(self.model_name,), files={item.path: item.sha256 for item in self.items})


def layout(profile: Profile, engines: Engines, plan: Plan) -> Repository:
    """The repository that serves ``plan`` on ``engines``."""
    settings = settings_of(profile, engines, plan)
    name = profile.model_name
    version = f"{name}/{VERSION}"
    items = [
        Item.of(f"{name}/{config.FILE}", config.to_text(config.build(name)).encode()),
        Item.of(f"{version}/{SETTINGS}", settings.to_json().encode()),
        Item.of(f"{version}/{PLAN}", plan.to_json().encode()),
        *_code(version),
        *_engine(engines.target, f"{version}/{TARGET}"),
        *(_engine(engines.draft, f"{version}/{DRAFT}") if settings.max_draft_len else ()),
    ]
    return Repository(name, tuple(sorted(items, key=lambda item: item.path)))


def settings_of(profile: Profile, engines: Engines, plan: Plan) -> Settings:
    """What the served model knows about itself."""
    off = all(choice.policy.is_off for choice in plan.choices.values())
    return Settings(
        pair=profile.name,
        pair_digest=engines.digest,
        graph=plan.graph,
        numerics=plan.numerics,
        max_batch_size=profile.limits.max_batch_size,
        max_input_len=profile.limits.max_input_len,
        max_seq_len=profile.limits.max_seq_len,
        max_draft_len=0 if off else profile.limits.max_draft_len,
        kv_cache_gib=profile.limits.kv_cache_gib,
        vocab_size=min(engines.target.manifest.vocab_size, engines.draft.manifest.vocab_size),
        eos_ids=engines.target.manifest.eos_ids,
    )


def disagreements(profile: Profile, engines: Engines, plan: Plan) -> Iterator[Fault]:
    """Why this plan does not describe these engines."""
    again = "run specbuild tune again"
    if plan.pair_digest != engines.digest:
        yield Fault(
            f"the plan was tuned on pair {plan.pair_digest[:12]}, the engines are {engines.digest[:12]}", fix=again
        )
    if plan.numerics != profile.numerics:
        yield Fault(f"the plan was tuned with numerics {plan.numerics}, the profile says {profile.numerics}", fix=again)
    if not plan.choices:
        yield Fault("the plan has no budget", fix=again)
    for name, choice in plan.choices.items():
        if choice.policy.max_draft_len > profile.limits.max_draft_len:
            yield Fault(
                f"budget {name!r} drafts {choice.policy.max_draft_len} tokens,"
                f" the profile allows {profile.limits.max_draft_len}",
                profile.where("limits", "max_draft_len"),
                again,
            )


def _code(version: str) -> Iterator[Item]:
    needed = closure(MODEL)
    yield Item.of(f"{version}/model.py", source(MODEL).read_bytes())
    for package in needed.packages:
        yield Item.of(f"{version}/{package.replace('.', '/')}/__init__.py", b"")
    for module, path in needed.modules.items():
        yield Item.of(f"{version}/{module.replace('.', '/')}.py", path.read_bytes())


def _engine(engine: Engine, folder: str) -> Iterator[Item]:
    manifest = (engine.folder / ENGINE_MANIFEST).read_bytes()
    yield Item.of(f"{folder}/{ENGINE_MANIFEST}", manifest)
    for name, digest in engine.manifest.files.items():
        yield Item(f"{folder}/{name}", digest, source=engine.folder / name)
