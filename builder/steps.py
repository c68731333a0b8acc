"""What has to be built, decided without building: one step per engine, keyed by all that it depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from specbuild.builder.groups import group_size
from specbuild.builder.stacks import llama
from specbuild.builder.toolchain import Toolchain
from specbuild.errors import ToolchainError
from specbuild.pair import ModelFacts, Pair, Role
from specbuild.profile import Calibration, ModelSpec, Precision, Profile
from specbuild.record import digest_of

Exporter = Literal["graph", "optimum"]
ExporterChoice = Literal["auto", "graph", "optimum"]
Inputs = dict[str, str | int | float | bool | None]

RECIPE = 1
"""Version of what is done around an export: weight compression settings, tokenizer conversion, files copied."""


@dataclass(frozen=True)
class CalibrationData:
    """The text that a data-aware compression looks at."""

    path: Path
    digest: str
    """sha256 of the file."""
    settings: Calibration


@dataclass(frozen=True)
class BuildStep:
    """One engine to build."""

    key: str
    """sha256 of ``inputs``."""
    roles: tuple[Role, ...]
    facts: ModelFacts = field(repr=False)
    precision: Precision
    exporter: Exporter
    group_size: int | None
    """Columns that share a scale, of int4 weights."""
    calibration: CalibrationData | None
    inputs: Inputs = field(repr=False)
    """Everything that the engine depends on, by name."""

    @property
    def title(self) -> str:
        """The step in a few words, for narration."""
        return f"{' and '.join(self.roles)} ({self.precision})"


@dataclass(frozen=True)
class BuildSteps:
    """A step for each role; equal ones are one engine."""

    target: BuildStep
    draft: BuildStep

    def distinct(self) -> tuple[BuildStep, ...]:
        """The steps without repetition, target first."""
        return (self.target,) if self.target.key == self.draft.key else (self.target, self.draft)


def derive(
    profile: Profile,
    pair: Pair,
    toolchain: Toolchain,
    *,
    exporter: ExporterChoice = "auto",
    calibration: Mapping[Role, CalibrationData] | None = None,
) -> BuildSteps:
    """The steps that make the engines of ``profile``.

    Raises ToolchainError where an exporter that was asked for cannot build a model, or a library is missing.
    """
    data = calibration or {}
    target = _step("target", profile.target, pair.target, toolchain, exporter, data.get("target"))
    draft = _step("draft", profile.draft, pair.draft, toolchain, exporter, data.get("draft"))
    if target.key == draft.key:
        both: tuple[Role, ...] = ("target", "draft")
        target = draft = replace(target, roles=both)
    return BuildSteps(target, draft)


def choose(facts: ModelFacts, exporter: ExporterChoice) -> Exporter:
    """The exporter of a model: our graph where it knows the model, else optimum-intel.

    Raises ToolchainError where the graph was asked for and cannot.
    """
    if exporter == "optimum":
        return "optimum"
    refusal = llama.refusal(facts.config, facts.tensors)
    if refusal is None:
        return "graph"
    if exporter == "graph":
        raise ToolchainError(
            f"the graph exporter cannot build this model: {refusal}",
            where=str(facts.folder),
            fix="use --exporter optimum",
        )
    return "optimum"


def _step(
    role: Role,
    spec: ModelSpec,
    facts: ModelFacts,
    toolchain: Toolchain,
    exporter: ExporterChoice,
    calibration: CalibrationData | None,
) -> BuildStep:
    chosen = choose(facts, exporter)
    columns = group_size(facts.tensors) if spec.precision == "int4" else None
    data = calibration if spec.precision == "int4" else None
    inputs: Inputs = {f"file {name}": digest for name, digest in sorted(facts.files.items())}
    inputs |= {"precision": spec.precision, "group size": columns, "recipe": RECIPE, "exporter": chosen}
    if chosen == "graph":
        inputs["graph schema"] = llama.GRAPH_SCHEMA
    if data:
        inputs |= {
            "calibration data": data.digest,
            "calibration from traffic": data.settings.data == "traffic",
            "calibration size": data.settings.size,
            "calibration max_seq_length": data.settings.max_seq_length,
        }
    inputs |= {f"{name} version": toolchain.version(name) for name in _libraries(spec.precision, chosen)}
    return BuildStep(digest_of(inputs), (role,), facts, spec.precision, chosen, columns, data, inputs)


def _libraries(precision: Precision, exporter: Exporter) -> tuple[str, ...]:
    libraries: tuple[str, ...] = ("openvino", "openvino-tokenizers", "transformers")
    if precision in ("int8", "int4"):
        libraries += ("nncf",)
    if exporter == "optimum":
        libraries += ("optimum", "optimum-intel", "torch")
    return libraries
