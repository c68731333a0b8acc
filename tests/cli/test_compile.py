"""``specbuild compile``: what is decided, what is printed, exit codes."""

import json
import shutil
from pathlib import Path

import pytest
from small_models import change_json, write_model, write_pair

from specbuild.cli import main


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    """A pair, its profile and its engines in ``store``."""
    folder = tmp_path_factory.mktemp("cli-compile")
    profile = write_pair(folder, draft={"model": "draft", "precision": "int4"})
    write_model(folder / "draft", seed=2, num_hidden_layers=1, hidden_size=128, head_dim=32)
    assert main(["compile", str(profile), "--store", str(folder / "store")]) == 0
    return folder


@pytest.fixture
def home(compiled, tmp_path, monkeypatch) -> Path:
    copy = Path(shutil.copytree(compiled, tmp_path / "home"))
    monkeypatch.setenv("SPECBUILD_STORE", str(copy / "store"))
    return copy / "profile.yaml"


def test_what_was_built_is_told(home, capsys):
    assert main(["compile", str(home)]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith("target  fp16   469.7 KiB  ")
    assert "          int4 weights: symmetric, one scale for 128 columns, not calibrated" in lines
    assert lines[-1].startswith("both engines are ready (")
    assert captured.err.count("already built") == 2


def test_the_json_of_a_compile(home, capsys):
    assert main(["compile", str(home), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["pair_digest", "target", "draft", "steps", "seconds"]
    assert list(found["target"]) == ["key", "folder", "precision", "weight_bytes", "notes"]
    assert Path(found["target"]["folder"]).name == found["target"]["key"]
    assert [step["action"] for step in found["steps"]] == ["hit", "hit"]
    names = ["key", "roles", "model", "precision", "exporter", "action", "changes"]
    assert list(found["steps"][0]) == names
    assert json.loads((home.parent / "out/small/engines.json").read_text())["target"] == found["target"]["key"]


def test_a_dry_run_decides_and_stops(home, capsys):
    write_model(home.parent / "draft", seed=3, num_hidden_layers=1)
    assert main(["compile", str(home), "--dry-run", "--json"]) == 0
    target, draft = json.loads(capsys.readouterr().out)["steps"]
    assert (target["action"], draft["action"]) == ("hit", "build")
    assert not (home.parent / "store/engines" / draft["key"]).exists()
    assert main(["compile", str(home), "--dry-run"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"target (fp16), graph, {target['key'][:12]}: hit"
    assert second == f"draft (int4), graph, {draft['key'][:12]}: build"


def test_why_a_step_runs_is_explained(home, capsys):
    assert main(["compile", str(home), "--force", "--dry-run"]) == 0
    assert capsys.readouterr().out.count(": force") == 2
    assert main(["compile", str(home), "--explain"]) == 0
    assert capsys.readouterr().err.count(": hit") == 2


def test_warnings_of_the_check_are_shown(home, capsys):
    change_json(home.parent / "draft/tokenizer_config.json", lambda value: value.pop("chat_template"))
    assert main(["compile", str(home), "--dry-run"]) == 0
    assert "  ! [chat-template] only the target has" in capsys.readouterr().err


def test_the_graph_exporter_refuses_what_it_does_not_know(home, capsys):
    change_json(home.parent / "draft/config.json", lambda config: config.update(hidden_act="gelu"))
    assert main(["compile", str(home), "--exporter", "graph"]) == 4
    assert "it has no gelu activation" in capsys.readouterr().err


def test_a_broken_pair_builds_nothing(home, capsys):
    change_json(home.parent / "draft/tokenizer.json", lambda value: value["model"]["merges"].pop())
    assert main(["compile", str(home)]) == 3
    assert "[merges]" in capsys.readouterr().err
