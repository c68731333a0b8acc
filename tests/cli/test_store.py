"""``specbuild store``: what is there, whether it is sound, and what goes."""

import json
import shutil

import pytest
from small_models import write_model, write_pair, write_profile

from specbuild import builder
from specbuild.cli import main
from specbuild.profile import Profile


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A profile whose engines are in ``store`` beside it."""
    folder = tmp_path_factory.mktemp("cli-store")
    profile = write_pair(folder)
    builder.compile(Profile.load(profile), store=folder / "store")
    return profile


@pytest.fixture
def store(compiled, tmp_path, monkeypatch):
    copy = tmp_path / "copied"
    shutil.copytree(compiled.parent / "store", copy)
    monkeypatch.setenv("SPECBUILD_STORE", str(copy))
    return copy


def listed(capsys) -> list[dict]:
    """What the store holds; anything printed before is dropped."""
    capsys.readouterr()
    assert main(["store", "ls", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["engines"]


def test_ls(store, compiled, capsys):
    draft, target = sorted(listed(capsys), key=lambda item: item["parameters"])
    names = ["key", "bytes", "faults", "precision", "architecture", "parameters", "source", "created"]
    assert list(target) == names
    assert target["source"] == str(compiled.parent / "target")
    assert main(["store", "ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines[:2]} == {target["key"][:12], draft["key"][:12]}
    assert lines[2].endswith(f" in {store}")


def test_verify_finds_a_flipped_bit(store, capsys):
    assert main(["store", "verify"]) == 0
    key = listed(capsys)[0]["key"]
    weights = store / "engines" / key / "openvino_model.bin"
    data = bytearray(weights.read_bytes())
    data[1000] ^= 1
    weights.write_bytes(data)
    assert main(["store", "verify", "--json"]) == 5
    (fault,) = json.loads(capsys.readouterr().out)["faults"]
    assert fault["what"] == f"engine {key[:12]}: openvino_model.bin has changed"


def test_gc_keeps_what_is_sound(store, capsys):
    key = listed(capsys)[0]["key"]
    (store / "engines" / key / "openvino_model.bin").unlink()
    (store / "partial" / f"{key}.1").mkdir()
    assert main(["store", "gc", "--json"]) == 0
    removed = json.loads(capsys.readouterr().out)["engines"]
    assert [entry["faults"] for entry in removed] == [["openvino_model.bin is missing"], ["left by a killed run"]]
    assert len(listed(capsys)) == 1
    assert main(["store", "gc"]) == 0
    assert capsys.readouterr().out.startswith("nothing to remove\n")


def test_gc_keeps_what_profiles_use(store, compiled, tmp_path, capsys):
    write_model(tmp_path / "target", seed=8, num_hidden_layers=1)
    other = write_profile(tmp_path, draft={"model": "target", "precision": "fp16"})
    builder.compile(Profile.load(other))
    assert len(listed(capsys)) == 3
    assert main(["store", "gc", "--keep", str(compiled)]) == 0
    assert len(listed(capsys)) == 2
    assert main(["store", "gc", "--keep", str(other)]) == 5  # not compiled any more: nothing is guessed
    assert main(["store", "gc", "--all", "--keep", str(compiled)]) == 2
    assert len(listed(capsys)) == 2
    assert main(["store", "gc", "--all"]) == 0
    assert listed(capsys) == []
