"""The tiny pair, made and compiled once for the whole run (shared by all xdist workers)."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

from specbuild.engine import Engines
from specbuild.profile import Profile

settings.register_profile("no deadline", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("no deadline")


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's store, and none can reach a model hub."""
    monkeypatch.setenv("SPECBUILD_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder that all workers of this run share."""
    root = tmp_path_factory.getbasetemp()
    folder = (root if worker_id == "master" else root.parent) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def tiny_folder(shared: Path) -> Path:
    """The example ``tiny``: models, traffic and profile. Read only: copy it to change it."""
    from specbuild.builder.examples import write_example

    with FileLock(shared / "tiny.lock"):
        return write_example("tiny", shared / "tiny").parent


@pytest.fixture(scope="session")
def tiny_profile(tiny_folder: Path) -> Profile:
    """The profile of the example ``tiny``."""
    return Profile.load(tiny_folder / "profile.yaml")


@pytest.fixture(scope="session")
def tiny_store(shared: Path) -> Path:
    """The store that holds the tiny pair's engines. Read only."""
    return shared / "store"


@pytest.fixture(scope="session")
def tiny_engines(shared: Path, tiny_profile: Profile, tiny_store: Path) -> Engines:
    """The tiny pair, compiled for real (fp16 target, fp16 draft)."""
    from specbuild import builder

    with FileLock(shared / "engines.lock"):
        return builder.compile(tiny_profile, store=tiny_store)
