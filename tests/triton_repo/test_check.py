from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from specbuild.engine import Engines
from specbuild.errors import RepositoryError
from specbuild.plan import Plan
from specbuild.profile import Profile
from specbuild.triton_repo.check import check
from specbuild.triton_repo.write import render


@pytest.fixture
def repository(profile: Profile, engines: Engines, plan: Plan) -> Path:
    return render(profile, engines, plan)


def _faults(folder: Path) -> list[str]:
    with pytest.raises(RepositoryError) as caught:
        check(folder)
    assert caught.value.exit_code == 7
    return [str(fault) for fault in caught.value.faults]


def _edit(folder: Path, name: str, change: Callable[[dict[str, object]], None]) -> None:
    """Change a JSON file, and its digest in the manifest with it."""
    path = folder / "tiny" / "1" / name
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][f"tiny/1/{name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "name",
    ["model.py", "plan.json", "session.json", "specbuild/runtime/speculate.py", "engines/draft/openvino_model.bin"],
)
def test_a_missing_file_is_named(repository: Path, name: str) -> None:
    (repository / "tiny" / "1" / name).unlink()
    assert any(f"{name}: is missing" in fault for fault in _faults(repository))


@pytest.mark.parametrize("name", ["1/model.py", "1/engines/target/openvino_model.bin", "1/plan.json"])
def test_a_changed_file_is_named(repository: Path, name: str) -> None:
    path = repository / "tiny" / name
    content = path.read_bytes()
    path.unlink()  # an engine's file is linked to the store's
    path.write_bytes(content + b" ")
    (fault,) = _faults(repository)
    assert f"{name}: is not the file that was rendered" in fault


def test_a_foreign_file_is_named_and_compiled_python_is_not(repository: Path) -> None:
    cache = repository / "tiny" / "1" / "__pycache__"
    cache.mkdir()
    (cache / "model.pyc").write_bytes(b"")
    check(repository)
    (repository / "other").mkdir()
    (repository / "other" / "config.pbtxt").write_text("")
    (fault,) = _faults(repository)
    assert "other/config.pbtxt: does not belong here" in fault


def test_all_faults_come_at_once(repository: Path) -> None:
    version = repository / "tiny" / "1"
    (version / "model.py").unlink()
    (version / "engines" / "draft" / "engine.json").unlink()
    (repository / "tiny" / "config.pbtxt").write_text("name: ${model}")
    assert len(_faults(repository)) >= 4


def test_a_manifest_without_the_model_is_a_fault(repository: Path) -> None:
    manifest = json.loads((repository / "manifest.json").read_text())
    del manifest["files"]["tiny/1/model.py"]
    (repository / "manifest.json").write_text(json.dumps(manifest))
    (repository / "tiny" / "1" / "model.py").unlink()
    (fault,) = _faults(repository)
    assert "lists no model.py" in fault


def test_a_folder_that_was_not_rendered(tmp_path: Path) -> None:
    (fault,) = _faults(tmp_path)
    assert "is not a rendered repository" in fault


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        ("session.json", lambda data: data.update(pair_digest="f" * 64), "pair_digest is"),
        ("session.json", lambda data: data.update(numerics="fast"), "numerics is exact"),
        ("session.json", lambda data: data.update(max_draft_len=3), "'chat' drafts more than the 3 tokens"),
        ("session.json", lambda data: data.update(speed=9), "cannot be read"),
        ("session.json", lambda data: data.pop("eos_ids"), "cannot be read"),
        ("session.json", lambda data: data.update(schema_version=2), "schema_version 2 is not 1"),
        ("plan.json", lambda data: data.update(choices={}), "the plan has no budget"),
        ("plan.json", lambda data: data.pop("graph"), "graph: Field required"),
        ("engines/draft/engine.json", lambda data: data.update(key="e" * 64), "not the pair that was tuned"),
        ("engines/target/engine.json", lambda data: data.pop("files"), "files: Field required"),
    ],
)
def test_files_that_disagree(
    repository: Path, name: str, change: Callable[[dict[str, object]], None], fault: str
) -> None:
    _edit(repository, name, change)
    assert any(fault in one for one in _faults(repository))


def test_a_copy_elsewhere_passes(repository: Path, tmp_path: Path) -> None:
    check(Path(shutil.copytree(repository, tmp_path / "elsewhere")))
