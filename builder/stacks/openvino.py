"""The stack ``openvino``: one model folder to one engine, OpenVINO IR with its tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specbuild.builder import calibration, quantize, tokenizer
from specbuild.builder.modelfolder import CONFIG, GENERATION_CONFIG, TOKENIZER_FILES
from specbuild.builder.stacks import llama
from specbuild.builder.steps import BuildStep
from specbuild.builder.weights import read_header, weight_files
from specbuild.clock import now_ns, utc_stamp
from specbuild.console import step as narrate
from specbuild.engine import MANIFEST, Manifest
from specbuild.errors import BuildError
from specbuild.profile import Precision
from specbuild.store import file_digest
from specbuild.units import NS_PER_S

if TYPE_CHECKING:
    import openvino as ov

PRECISIONS: tuple[Precision, ...] = ("fp16", "bf16", "int8", "int4")
MODEL = "openvino_model.xml"
WEIGHTS = "openvino_model.bin"
INPUTS = {"input_ids": 2, "attention_mask": 2, "position_ids": 2, "beam_idx": 1}
"""Inputs that the runtime feeds → rank. ``position_ids`` may be missing where a model has no positions."""


def build(step: BuildStep, folder: Path) -> Manifest:
    """Fill ``folder`` with the engine of ``step``, read it back, and write its manifest.

    Raises BuildError where a part fails, ToolchainError where optimum-intel is needed and missing.
    """
    from specbuild.builder import ir

    begun = now_ns()
    source = step.facts.folder
    with narrate(f"{step.title}: tokenizer"):
        tokens = tokenizer.load(source)
        notes = tokenizer.convert(tokens, folder)
    with narrate(f"{step.title}: export ({step.exporter})"):
        model = _export(step, folder)
    if step.precision in ("int8", "int4"):
        with narrate(f"{step.title}: weights to {step.precision}"):
            samples = calibration.samples(step.calibration, tokens) if step.calibration else None
            model = quantize.compress(model, step.precision, group_size=step.group_size, samples=samples)
            notes += _compression_notes(step, samples)
    with narrate(f"{step.title}: write and read back"):
        ir.save(model, folder / MODEL)
        del model
        _copy_texts(source, folder)
        _check_ports(ir.read(folder / MODEL), step, folder / MODEL)
        manifest = _manifest(step, folder, notes, begun)
        (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def _export(step: BuildStep, folder: Path) -> ov.Model:
    source = step.facts.folder
    dtype = step.precision if step.precision in ("fp16", "bf16") else "stored"
    if step.exporter == "optimum":
        from specbuild.builder.stacks import optimum_export

        return optimum_export.export(source, folder / "export", dtype)
    from specbuild.builder.stacks import llama_graph

    tensors = {name: item for file in weight_files(source) for name, item in read_header(file).items()}
    return llama_graph.build(llama.spec(step.facts.config), tensors, dtype)


def _check_ports(model: ov.Model, step: BuildStep, path: Path) -> None:
    """Raise BuildError where an engine that was read back is not what the runtime feeds."""
    inputs = {port.get_any_name(): port.partial_shape.rank.get_length() for port in model.inputs}
    wrong = [f"input {name} of rank {rank}" for name, rank in inputs.items() if INPUTS.get(name) != rank]
    wrong += [f"no input {name}" for name in INPUTS if name not in inputs and name != "position_ids"]
    outputs = {port.get_any_name(): port.partial_shape[-1] for port in model.outputs}
    if "logits" not in outputs or outputs["logits"] != step.facts.vocab_size:
        wrong.append(f"no logits over {step.facts.vocab_size} tokens")
    if len(model.get_sinks()) != 2 * step.facts.layers:
        wrong.append(f"{len(model.get_sinks())} cached tensors for {step.facts.layers} layers")
    if wrong:
        raise BuildError(f"the engine's ports are not as the runtime needs them: {', '.join(wrong)}", where=str(path))


def _copy_texts(source: Path, folder: Path) -> None:
    for name in (CONFIG, GENERATION_CONFIG, *TOKENIZER_FILES):
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def _compression_notes(step: BuildStep, samples: list[list[int]] | None) -> tuple[str, ...]:
    if step.precision == "int8":
        return ("int8 weights: asymmetric, one scale a row",)
    aware = f"AWQ and scale estimation over {len(samples)} samples" if samples else "not calibrated"
    return (
        f"int4 weights: symmetric, one scale for {step.group_size} columns, {aware}",
        "tables and head: int8, asymmetric",
    )


def _manifest(step: BuildStep, folder: Path, notes: tuple[str, ...], begun_ns: int) -> Manifest:
    facts = step.facts
    files: dict[str, Any] = {path.name: path for path in sorted(folder.iterdir())}
    return Manifest(
        key=step.key,
        stack="openvino",
        precision=step.precision,
        inputs=step.inputs,
        files={name: file_digest(path) for name, path in files.items()},
        sizes={name: path.stat().st_size for name, path in files.items()},
        source=str(facts.folder),
        architecture=facts.architecture,
        vocab_size=facts.vocab_size,
        layers=facts.layers,
        kv_heads=facts.kv_heads,
        head_dim=facts.head_dim,
        max_position=facts.max_position,
        parameters=facts.parameters,
        weight_bytes=(folder / WEIGHTS).stat().st_size,
        eos_ids=facts.eos_ids,
        created=utc_stamp(),
        seconds=round((now_ns() - begun_ns) / NS_PER_S, 2),
        notes=notes,
    )
