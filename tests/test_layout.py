"""The repository keeps its own word: links, profiles, public names."""

from __future__ import annotations

from pathlib import Path

import pytest

import specbuild
from specbuild.profile import Profile

ROOT = Path(__file__).parent.parent
LINKED = ("builder", "runtime", "triton_repo", "profiles")
PROFILES = sorted(path for path in (ROOT / "profiles").rglob("*.yaml"))


@pytest.mark.parametrize("name", LINKED)
def test_links_lead_to_the_folders(name: str) -> None:
    link = ROOT / "specbuild" / name
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == ROOT / name


def test_folders_are_one_package() -> None:
    import specbuild.builder

    assert Path(specbuild.builder.__file__).parent.samefile(ROOT / "builder")


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_profile_loads(path: Path) -> None:
    assert Profile.load(path).budgets


def test_there_are_profiles() -> None:
    assert PROFILES


def test_public_names_are_all_there_is() -> None:
    for name in specbuild.__all__:
        assert getattr(specbuild, name) is not None
    lazy = set(specbuild._HOMES) | {"__version__"}
    assert lazy == set(specbuild.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = specbuild.nothing
