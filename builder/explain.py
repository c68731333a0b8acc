"""Why a step is a hit or a rebuild: which of its inputs differ from those of the nearest engine in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specbuild.builder.steps import BuildStep
from specbuild.engine import Manifest
from specbuild.store import Entry, Store


@dataclass(frozen=True)
class Reason:
    """What happens to a step, and why."""

    action: str
    """``hit``, ``build`` (nothing like it in the store), ``rebuild`` (an input changed), ``repair`` or ``force``."""
    changes: tuple[str, ...] = ()
    """Inputs that changed, or what is damaged."""

    @property
    def text(self) -> str:
        """The reason in one line."""
        return f"{self.action}: {'; '.join(self.changes)}" if self.changes else self.action


def explained(step: BuildStep, store: Store, *, force: bool = False) -> Reason:
    """Hit or rebuild, against the newest engine of the same model folder, of the same precision where there is one."""
    entries = store.ls()
    own = next((entry for entry in entries if entry.key == step.key), None)
    if own and own.faults:
        return Reason("repair", own.faults)
    if own:
        return Reason("force" if force else "hit")
    nearest = _nearest(step, entries)
    return Reason("rebuild", _changes(step, nearest)) if nearest else Reason("build")


def as_json(step: BuildStep, reason: Reason) -> dict[str, Any]:
    """A step as ``--json`` prints it."""
    return {
        "key": step.key,
        "roles": list(step.roles),
        "model": str(step.facts.folder),
        "precision": step.precision,
        "exporter": step.exporter,
        "action": reason.action,
        "changes": list(reason.changes),
    }


def _nearest(step: BuildStep, entries: list[Entry]) -> Manifest | None:
    source = str(step.facts.folder)
    same = [entry.engine.manifest for entry in entries if entry.engine and entry.engine.manifest.source == source]
    return next((item for item in same if item.precision == step.precision), same[0] if same else None)


def _changes(step: BuildStep, before: Manifest) -> tuple[str, ...]:
    names = sorted({*step.inputs, *before.inputs})
    return tuple(
        f"{name} {_short(before.inputs.get(name))} → {_short(step.inputs.get(name))}"
        for name in names
        if before.inputs.get(name) != step.inputs.get(name)
    )


def _short(value: object) -> str:
    text = "none" if value is None else str(value)
    return text[:8] if len(text) == 64 else text
