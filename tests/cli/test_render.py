from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from paper import plan_of

from specbuild.cli import main
from specbuild.engine import Engines
from specbuild.plan import Plan, PolicySpec
from specbuild.profile import Profile


@pytest.fixture
def file(tiny_folder: Path, tmp_path: Path) -> Path:
    """A profile of its own, whose engines are in the shared store."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "tiny")) / "profile.yaml"


@pytest.fixture
def plan(file: Path, tiny_engines: Engines) -> Plan:
    profile = Profile.load(file)
    plan = plan_of(tiny_engines, {"chat": PolicySpec.fixed(2)}).model_copy(update={"numerics": profile.numerics})
    plan.write(profile.out / "plan.json")
    return plan


def _render(file: Path, store: Path, *arguments: str) -> int:
    return main(["render", str(file), "--store", str(store), *arguments])


def test_render_check_and_render_again(
    file: Path, plan: Plan, tiny_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _render(file, tiny_store) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert folder == Profile.load(file).out / "repository"
    assert main(["render", "--check", str(folder)]) == 0
    assert "nothing wrong" in capsys.readouterr().out
    assert _render(file, tiny_store, "--json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"repository": str(folder), "model": "tiny"}
    assert "up to date" in shown.err
    (folder / "tiny" / "1" / "model.py").unlink()
    assert main(["render", "--check", str(folder)]) == 7
    assert "model.py: is missing" in capsys.readouterr().err


def test_a_dry_run_lists_and_writes_nothing(
    file: Path, plan: Plan, tiny_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "elsewhere"
    assert _render(file, tiny_store, "--dry-run", "-o", str(out)) == 0
    shown = capsys.readouterr().out
    assert "tiny/1/model.py" in shown
    assert "tiny/1/engines/draft/openvino_model.bin" in shown
    assert _render(file, tiny_store, "--dry-run", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert not out.exists()
    assert _render(file, tiny_store, "-o", str(out)) == 0
    assert {name: (out / name).stat().st_size for name in listed} == listed


def test_a_plan_of_other_numerics_is_refused(
    file: Path, plan: Plan, tiny_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = "fast" if plan.numerics == "exact" else "exact"
    plan.model_copy(update={"numerics": other}).write(Profile.load(file).out / "plan.json")
    for arguments in ((), ("--dry-run",)):
        assert _render(file, tiny_store, *arguments) == 7
        assert "run specbuild tune again" in capsys.readouterr().err


def test_there_is_no_plan_yet(file: Path, tiny_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _render(file, tiny_store) == 2
    assert f"run specbuild tune {file}" in capsys.readouterr().err


def test_there_are_no_engines_yet(file: Path, plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _render(file, tmp_path / "empty") == 5
    assert "run specbuild compile" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["profile.yaml", "--check", "folder"]])
def test_a_profile_or_a_folder_to_check(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", *arguments]) == 2
    assert "give a PROFILE, or --check DIR" in capsys.readouterr().err


def test_check_of_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "--check", str(tmp_path)]) == 7
    assert "is not a rendered repository" in capsys.readouterr().err
