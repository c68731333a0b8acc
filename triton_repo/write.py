"""A repository onto the disk: written aside, then swapped in whole."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

from filelock import FileLock

from specbuild.console import say
from specbuild.engine import Engines
from specbuild.errors import ProfileError, RepositoryError
from specbuild.plan import Plan
from specbuild.profile import Profile
from specbuild.triton_repo.check import changed_files
from specbuild.triton_repo.layout import MANIFEST, Item, Repository, RepositoryManifest, disagreements, layout

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def render(profile: Profile, engines: Engines, plan: Plan, *, out: Path | None = None) -> Path:
    """Write the Triton model repository that serves ``plan``; by default to ``repository`` beside the plan.

    Raises RepositoryError where the plan was not made for these engines, or ``out`` holds something else.
    """
    if faults := list(disagreements(profile, engines, plan)):
        raise RepositoryError(faults)
    folder = out or profile.out / "repository"
    write(layout(profile, engines, plan), folder)
    return folder


def write(repository: Repository, folder: Path) -> bool:
    """Make ``folder`` hold this repository; False where it already does.

    A reader sees the old repository or the new one. Raises RepositoryError where ``folder`` is not a repository of
    ours and not empty.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        for left in folder.parent.glob(f".{folder.name}.*.part"):  # of a run that was killed
            shutil.rmtree(left)
        if _holds(folder, repository):
            say(f"  ✓ {folder} is up to date")
            return False
        aside = folder.with_name(f".{folder.name}.{os.getpid()}.part")
        try:
            for item in repository.items:
                _place(item, aside / item.path)
            repository.manifest.write(aside / MANIFEST)
            _swap(aside, folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return True


def _holds(folder: Path, repository: Repository) -> bool:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    try:
        manifest = RepositoryManifest.read(folder / MANIFEST)
    except ProfileError as error:
        raise RepositoryError(
            "is there and was not written by specbuild", where=str(folder), fix="name another folder with -o"
        ) from error
    return manifest == repository.manifest and not any(changed_files(folder, manifest))


def _place(item: Item, path: Path) -> None:
    """Write one file. An engine's file is linked where the file system allows: the store never changes one in place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if item.source:
        try:
            path.hardlink_to(item.source.resolve())
        except OSError:
            shutil.copyfile(item.source, path)
    else:
        path.write_bytes(item.content or b"")
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _swap(aside: Path, folder: Path) -> None:
    """Put ``aside`` in the place of ``folder``, which then lies aside."""
    if not folder.exists():
        aside.rename(folder)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, bytes(aside), _AT_FDCWD, bytes(folder), _RENAME_EXCHANGE):
        old = aside.with_suffix(".old.part")  # a file system that cannot exchange: for a moment there is none
        folder.rename(old)
        aside.rename(folder)
        shutil.rmtree(old)
