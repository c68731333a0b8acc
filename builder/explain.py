"""Why a step is a hit or a rebuild: which of its inputs differ from those of the nearest engine in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from specbuild.builder.steps import BuildStep
from specbuild.engine import Manifest
from specbuild.store import Entry, Store


@dataclass(frozen=True)
class Decision:
    """What happens to a step, and why."""

    step: BuildStep
    action: Literal["hit", "build", "rebuild", "repair", "force"]
    """``build``: nothing like it is in the store; ``rebuild``: an input changed; ``repair``: the engine is damaged."""
    changes: tuple[str, ...] = ()
    """Inputs that changed, or what is damaged."""

    def as_text(self) -> str:
        """The decision in one line."""
        why = f": {'; '.join(self.changes)}" if self.changes else ""
        return f"{self.step.title}, {self.step.exporter}, {self.step.key[:12]}: {self.action}{why}"

    def as_json(self) -> dict[str, Any]:
        """The decision as ``--json`` prints it."""
        return {
            "key": self.step.key,
            "roles": list(self.step.roles),
            "model": str(self.step.facts.folder),
            "precision": self.step.precision,
            "exporter": self.step.exporter,
            "action": self.action,
            "changes": list(self.changes),
        }


def explained(step: BuildStep, store: Store, *, force: bool = False) -> Decision:
    """Hit or rebuild, against the newest engine of the same model folder, of the same precision where there is one."""
    entries = store.ls()
    own = next((entry for entry in entries if entry.key == step.key), None)
    if own and own.faults:
        return Decision(step, "repair", own.faults)
    if own:
        return Decision(step, "force" if force else "hit")
    nearest = _nearest(step, entries)
    return Decision(step, "rebuild", _changes(step, nearest)) if nearest else Decision(step, "build")


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
