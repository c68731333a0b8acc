"""Compiling for real: what is built, what is not built again, and what a killed or starved run leaves."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_models import change_json, write_model, write_pair, write_profile

from specbuild import builder
from specbuild.builder import explain, run
from specbuild.engine import Engine
from specbuild.errors import BuildError, ToolchainError
from specbuild.profile import Profile
from specbuild.store import Store

CLI = [sys.executable, "-m", "specbuild", "compile"]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    """A folder with a pair, its profile, and a store that holds both engines; copied by each test."""
    folder = tmp_path_factory.mktemp("compiled")
    profile = write_pair(folder, draft={"model": "draft", "precision": "int8"})
    builder.compile(Profile.load(profile), store=folder / "store")
    return folder


@pytest.fixture
def home(compiled, tmp_path) -> Path:
    """A copy of the compiled folder that the test may change."""
    return Path(shutil.copytree(compiled, tmp_path / "home"))


def load(home: Path) -> Profile:
    return Profile.load(home / "profile.yaml")


def test_an_engine_is_all_that_the_runtime_needs(home):
    engines = builder.find_engines(load(home), store=home / "store")
    names = {path.name for path in engines.target.folder.iterdir()}
    model = {f"openvino_{part}.{kind}" for part in ("model", "tokenizer", "detokenizer") for kind in ("xml", "bin")}
    texts = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "engine.json"}
    assert names == model | texts
    manifest = engines.target.manifest
    assert set(manifest.files) == set(manifest.sizes) == names - {"engine.json"}
    assert (manifest.precision, manifest.layers, manifest.kv_heads, manifest.head_dim) == ("fp16", 6, 2, 16)
    assert manifest.weight_bytes == (engines.target.folder / "openvino_model.bin").stat().st_size
    assert engines.draft.manifest.notes == (
        "encoding adds no special token",
        "int8 weights: asymmetric, one scale a row",
    )
    assert Store(home / "store").verify()[0].faults == ()


def test_a_warm_run_builds_nothing_and_imports_nothing_heavy(home):
    heavy = "{'openvino', 'nncf', 'transformers', 'torch', 'huggingface_hub'}"
    code = f"import sys; from specbuild.cli import main; main(sys.argv[1:]); print({heavy} & set(sys.modules))"
    command = [sys.executable, "-c", code, "compile", str(home / "profile.yaml"), "--store", str(home / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
    assert done.stderr.count("already built") == 2


def test_only_what_changed_is_built_again(home):
    before = builder.find_engines(load(home), store=home / "store")
    write_model(home / "draft", seed=9, num_hidden_layers=1)
    with pytest.raises(BuildError, match=r"not compiled yet: draft \(int8\)") as caught:
        builder.find_engines(load(home), store=home / "store")
    assert caught.value.faults[0].fix == f"run specbuild compile {home / 'profile.yaml'}"
    after = builder.compile(load(home), store=home / "store")
    assert after.target.manifest == before.target.manifest
    assert after.draft.manifest.key != before.draft.manifest.key
    assert after.digest != before.digest
    assert builder.find_engines(load(home), store=home / "store") == after


def test_what_changed_is_explained(home):
    store = Store(home / "store")

    def reasons() -> dict[str, explain.Decision]:
        steps = run.prepare(load(home), store).steps
        return {role: explain.explained(getattr(steps, role), store) for role in ("target", "draft")}

    sources = {entry.engine.manifest.source for entry in store.ls()}
    assert {reason.action for reason in reasons().values()} == {"hit"}
    change_json(home / "draft/config.json", lambda config: config.update(rope_theta=20000.0))
    assert reasons()["target"].action == "hit"
    assert reasons()["draft"].action == "build"  # the copy's folder has no engine yet
    builder.compile(load(home), store=home / "store")
    assert {entry.engine.manifest.source for entry in store.ls()} == sources | {str(home / "draft")}
    change_json(home / "draft/config.json", lambda config: config.update(rope_theta=30000.0))
    changed = reasons()["draft"]
    assert changed.action == "rebuild"
    assert [text.split()[:2] for text in changed.changes] == [["file", "config.json"]]
    write_profile(home, draft={"model": "draft", "precision": "bf16"})
    names = [text.rsplit(" ", 3)[0] for text in reasons()["draft"].changes]
    assert names == ["file config.json", "nncf version", "precision"]


def test_force_builds_again_and_damage_is_repaired(home):
    store = Store(home / "store")
    first = builder.find_engines(load(home), store=store.root).draft
    weights = first.folder / "openvino_model.bin"
    weights.write_bytes(weights.read_bytes()[:-1])
    step = run.prepare(load(home), store).steps.draft
    assert explain.explained(step, store).action == "repair"
    repaired = run.ensure(step, store)
    assert repaired.manifest.files["openvino_model.bin"] == first.manifest.files["openvino_model.bin"]
    inode = (repaired.folder / "engine.json").stat().st_ino
    forced = run.ensure(step, store, force=True)
    assert (forced.folder / "engine.json").stat().st_ino != inode


def test_one_model_for_both_roles_is_built_once(home):
    same = {"model": "draft", "precision": "int8"}
    write_profile(home, target=same, draft=same)
    engines = builder.compile(load(home), store=home / "store")
    assert engines.target.folder == engines.draft.folder
    assert len(Store(home / "store").ls()) == 2


def test_the_exporter_that_was_asked_for_is_remembered(home):
    profile = load(home)
    builder.compile(profile, store=home / "store", exporter="graph")
    assert run.Lock.read(profile.out / "engines.json").exporter == "graph"
    assert builder.find_engines(profile, store=home / "store").draft.manifest.inputs["exporter"] == "graph"
    (profile.out / "engines.json").write_text("{")
    assert builder.find_engines(profile, store=home / "store").draft.manifest.inputs["exporter"] == "graph"


def test_without_the_engine_libraries_the_way_out_is_said(home, monkeypatch):
    from specbuild.builder import toolchain

    monkeypatch.setattr(toolchain, "_version", lambda library: None)
    with pytest.raises(ToolchainError, match="openvino is not installed"):
        builder.compile(load(home), store=home / "store")


def test_a_killed_run_leaves_nothing_visible_and_the_next_builds_only_what_is_missing(home):
    """Killed while the draft is in the making; the target that was finished before is kept."""
    write_model(home / "draft", seed=9, num_hidden_layers=1)
    store = Store(home / "store")
    known = {entry.key for entry in store.ls()}
    key = run.prepare(load(home), store).steps.draft.key
    process = subprocess.Popen([*CLI, str(home / "profile.yaml"), "--store", str(store.root)])
    partial = store.root / "partial"
    deadline = time.monotonic() + 120
    while not (any(partial.glob(f"{key}.*/openvino_tokenizer.xml"))) and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(list(partial.iterdir())) == 1
    assert {entry.key for entry in store.ls()} == known
    target = builder.compile(load(home), store=store.root).target
    assert Engine.open(target.folder).manifest.key in known
    assert list(partial.iterdir()) == []
    assert all(entry.faults == () for entry in store.verify())


def test_a_full_disk_is_said_and_leaves_nothing(home):
    """No file may grow beyond 200 kB, as a quota or a full disk would have it; the target's weights are larger."""
    shutil.rmtree(home / "store")

    def starve() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    command = [*CLI, str(home / "profile.yaml"), "--store", str(home / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=starve)
    assert done.returncode == 5, done.stderr
    assert "the disk is full" in done.stderr
    assert list((home / "store/partial").iterdir()) == []
    assert Store(home / "store").ls() == []


def test_two_runs_at_once_build_each_engine_once(home):
    shutil.rmtree(home / "store")
    command = [*CLI, str(home / "profile.yaml"), "--store", str(home / "store")]
    runs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = "".join(process.communicate()[1] for process in runs)
    assert [process.returncode for process in runs] == [0, 0], said
    assert said.count("write and read back") == 2
    assert all(entry.faults == () for entry in Store(home / "store").verify())
