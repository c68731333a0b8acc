"""The wheel holds the whole tree, and works without the source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from specbuild.cli import COMMANDS

ROOT = Path(__file__).parent.parent
FOLDERS = ("specbuild", "builder", "runtime", "triton_repo", "profiles")
FILES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packaged, links kept, without what runs leave behind."""
    copy = tmp_path_factory.mktemp("source")
    for name in FOLDERS:
        left_behind = shutil.ignore_patterns("__pycache__", "out", "*.egg-info")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=left_behind)
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), "."]
    subprocess.run(build, cwd=tree, check=True)
    (found,) = out.glob("specbuild-*.whl")
    return found


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel and nothing else."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([*PIP, "install", "--no-deps", "--no-index", "--target", str(folder), str(wheel)], check=True)
    return folder


def _specbuild(site: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command; the folder comes before the checkout that this environment may also hold."""
    command = [sys.executable, str(site / "bin" / "specbuild"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_holds_the_tree(tree: Path, wheel: Path) -> None:
    packaged = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    core = {path.relative_to(tree) for path in (tree / "specbuild").rglob("*") if path.is_file()}
    linked = {
        Path("specbuild") / path.relative_to(tree)
        for name in FOLDERS[1:]
        for path in (tree / name).rglob("*")
        if path.is_file()
    }
    assert packaged == {path.as_posix() for path in core | linked}


def test_the_wheel_carries_its_licence_and_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "specbuild/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_installed_command_runs_from_an_empty_folder(site: Path, tmp_path: Path) -> None:
    done = _specbuild(site, tmp_path, "--help")
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS)
    assert list(tmp_path.iterdir()) == []


def test_the_installed_package_is_the_one_that_runs(site: Path, tmp_path: Path) -> None:
    code = "import specbuild.builder; print(specbuild.__file__, specbuild.builder.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert all(path.startswith(str(site)) for path in done.stdout.decode().split())
