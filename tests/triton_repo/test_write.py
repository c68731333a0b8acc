from __future__ import annotations

from pathlib import Path

import pytest
from paper import plan_of

from specbuild.engine import Engines
from specbuild.errors import RepositoryError
from specbuild.plan import Plan, PolicySpec
from specbuild.profile import Profile
from specbuild.triton_repo import check, write
from specbuild.triton_repo.layout import layout
from specbuild.triton_repo.write import render


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _visible(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name != ".repository.lock"}


def test_render_writes_a_repository_that_check_passes(profile: Profile, engines: Engines, plan: Plan) -> None:
    folder = render(profile, engines, plan)
    assert folder == profile.out / "repository"
    manifest = check.check(folder)
    assert manifest.models == ("tiny",)
    assert set(manifest.files) == set(_tree(folder)) - {"manifest.json"}
    assert _visible(profile.out) == {"repository"}


def test_render_again_changes_nothing(profile: Profile, engines: Engines, plan: Plan) -> None:
    folder = render(profile, engines, plan)
    before = folder.stat().st_ino
    assert not write.write(layout(profile, engines, plan), folder)
    assert folder.stat().st_ino == before


def test_another_plan_replaces_the_whole(profile: Profile, engines: Engines, plan: Plan) -> None:
    folder = render(profile, engines, plan)
    render(profile, engines, plan_of(engines, {"chat": PolicySpec.fixed(0)}))
    check.check(folder)
    assert not (folder / "tiny" / "1" / "engines" / "draft").exists()
    assert _visible(profile.out) == {"repository"}


def test_a_damaged_repository_is_written_anew(profile: Profile, engines: Engines, plan: Plan) -> None:
    folder = render(profile, engines, plan)
    (folder / "tiny" / "1" / "model.py").unlink()
    render(profile, engines, plan)
    check.check(folder)


def test_a_file_system_that_cannot_exchange_folders(
    profile: Profile, engines: Engines, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = render(profile, engines, plan)
    monkeypatch.setattr(write, "_RENAME_EXCHANGE", 1 << 20)  # the kernel refuses unknown flags
    render(profile, engines, plan_of(engines, {"chat": PolicySpec.fixed(2)}))
    check.check(folder)
    assert _visible(profile.out) == {"repository"}


def test_a_file_system_without_links_gets_copies(
    profile: Profile, engines: Engines, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    check.check(render(profile, engines, plan))


def test_a_failed_run_leaves_the_old_repository_and_no_leavings(profile: Profile, engines: Engines, plan: Plan) -> None:
    folder = render(profile, engines, plan)
    before = _tree(folder)
    missing = engines.draft.folder / "openvino_model.bin"
    kept = missing.read_bytes()
    missing.unlink()
    with pytest.raises(FileNotFoundError):
        render(profile, engines, plan_of(engines, {"chat": PolicySpec.fixed(2)}))
    assert _tree(folder) == before
    assert _visible(profile.out) == {"repository"}
    missing.write_bytes(kept)
    render(profile, engines, plan_of(engines, {"chat": PolicySpec.fixed(2)}))
    assert _tree(folder) != before


def test_leavings_of_a_killed_run_go_away(profile: Profile, engines: Engines, plan: Plan) -> None:
    left = profile.out / ".repository.12345.part"
    (left / "tiny").mkdir(parents=True)
    render(profile, engines, plan)
    assert not left.exists()


def test_a_folder_of_something_else_is_not_replaced(
    tmp_path: Path, profile: Profile, engines: Engines, plan: Plan
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(RepositoryError, match="not written by specbuild"):
        render(profile, engines, plan, out=folder)
    assert _tree(folder) == {"thesis.txt": b"years of work"}
    (folder / "thesis.txt").unlink()
    check.check(render(profile, engines, plan, out=folder))


def test_a_plan_of_another_pair_is_refused(profile: Profile, engines: Engines, plan: Plan) -> None:
    with pytest.raises(RepositoryError, match="specbuild tune") as caught:
        render(profile, engines, plan.model_copy(update={"pair_digest": "f" * 64}))
    assert caught.value.exit_code == 7
    assert not profile.out.exists()
