"""Everything that can be known before a build: both models read, every rule asked, all faults at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from specbuild import trace
from specbuild.builder import calibration, facts, hub, machine, rules, toolchain
from specbuild.builder.facts import Digest
from specbuild.builder.machine import Machine
from specbuild.builder.situation import Situation
from specbuild.builder.steps import CalibrationData
from specbuild.errors import Fault, PairError, ProfileError, ToolchainError
from specbuild.pair import ModelFacts, Pair, Role
from specbuild.profile import Profile

_T = TypeVar("_T")


@dataclass(frozen=True)
class Sources:
    """What a profile names, read: the two models, and the text of each calibration."""

    pair: Pair
    calibration: Mapping[Role, CalibrationData]


def read(profile: Profile, digest: Digest, *, allow_download: bool = False) -> Sources:
    """The sources of a profile; ``digest`` gives the sha256 of a file.

    Raises ProfileError with everything that is missing or damaged, else ToolchainError for a model that is not here.
    """
    faults = _Faults()
    found: dict[Path, ModelFacts] = {}

    def model(role: Role) -> ModelFacts:
        folder = hub.locate(profile, role, allow_download=allow_download)
        if folder not in found:
            found[folder] = facts.read(folder, digest)
        return found[folder]

    roles: tuple[Role, Role] = ("target", "draft")
    target, draft = (faults.attempt(partial(model, role)) for role in roles)
    data = {role: faults.attempt(partial(_calibration, profile, role, digest)) for role in roles}
    faults.fly()
    assert target is not None  # noqa: S101 - else a fault has flown
    assert draft is not None  # noqa: S101
    return Sources(Pair(target, draft), {role: item for role, item in data.items() if item})


def check(profile: Profile, digest: Digest, *, allow_download: bool = False, room: Machine | None = None) -> Sources:
    """The sources of a profile after every rule was asked; the pair holds what does not stop a build.

    ``room`` is the machine's memory (read when None). Raises ProfileError or ToolchainError as ``read`` does, the
    traffic included, and PairError with every broken rule at once.
    """
    faults = _Faults()
    sources = faults.attempt(lambda: read(profile, digest, allow_download=allow_download))
    faults.attempt(lambda: _traffic(profile))
    faults.fly()
    assert sources is not None  # noqa: S101 - else a fault has flown
    findings = rules.ask(Situation(profile, sources.pair, room or machine.read(), toolchain.read()))
    errors = [item for item in findings if item.severity == "error"]
    if errors:
        raise PairError(Fault(f"[{item.rule}] {item.what}", item.where, item.fix) for item in errors)
    return Sources(Pair(sources.pair.target, sources.pair.draft, findings), sources.calibration)


class _Faults:
    """Faults collected from several attempts, raised together."""

    def __init__(self) -> None:
        self.bad: list[Fault] = []
        self.absent: list[Fault] = []

    def attempt(self, verb: Callable[[], _T]) -> _T | None:
        """What ``verb`` returns, or None after keeping its faults."""
        try:
            return verb()
        except ProfileError as error:
            self.bad += error.faults
        except ToolchainError as error:
            self.absent += error.faults
        return None

    def fly(self) -> None:
        if self.bad:
            raise ProfileError(dict.fromkeys(self.bad + self.absent))
        if self.absent:
            raise ToolchainError(dict.fromkeys(self.absent))


def _traffic(profile: Profile) -> None:
    path = profile.resolve(profile.traffic.file)
    if not path.is_file():
        raise ProfileError(
            f"no traffic file {path}", where=profile.where("traffic", "file"), fix="name a trace in JSONL"
        )
    trace.load(path)


def _calibration(profile: Profile, role: Role, digest: Digest) -> CalibrationData | None:
    settings = (profile.target if role == "target" else profile.draft).calibration
    if settings is None:
        return None
    path = calibration.source(profile, settings)
    try:
        return CalibrationData(path, digest(path), settings)
    except OSError as error:
        where = profile.where(role, "calibration", "data")
        raise ProfileError(f"cannot read the calibration data: {error}", where=where) from error
