"""The store of engines: folders named by the digest of what they were made of, whole or not there at all.

``engines/<key>`` holds finished engines, ``partial/`` those in the making, ``locks/`` one lock a key.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from specbuild.engine import Engine
from specbuild.errors import BuildError, ProfileError
from specbuild.units import human_bytes

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FREE = "free space, or name a store on another disk with --store, and run again: what is built is kept"


@dataclass(frozen=True)
class Entry:
    """One folder of the store and what is wrong with it."""

    key: str
    engine: Engine | None
    """None where the manifest is damaged."""
    bytes: int
    faults: tuple[str, ...] = ()


def default_root() -> Path:
    """``$SPECBUILD_STORE``, else ``$XDG_CACHE_HOME/specbuild``, else ``~/.cache/specbuild``."""
    named = os.environ.get("SPECBUILD_STORE")
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "specbuild"


class Store:
    """Engines by key under one folder; any number of processes may use it at once."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = (root or default_root()).expanduser().absolute()
        self._engines = self.root / "engines"
        self._partial = self.root / "partial"
        self._locks = self.root / "locks"

    @property
    def digests(self) -> Path:
        """The file that remembers digests of model files."""
        return self.root / "digests.json"

    def find(self, key: str) -> Engine | None:
        """The engine of this key if it is there and every file has its size; damaged ones are not found."""
        entry = self._entry(key)
        return entry.engine if entry and not entry.faults else None

    @contextmanager
    def building(self, key: str, *, force: bool = False) -> Iterator[Path | None]:
        """An empty folder to build the engine in, under the key's lock; None where another run has built it meanwhile.

        The folder must hold a manifest of ``key`` when the block ends; it then takes its place in one rename.
        Raises BuildError where the disk is full or refuses; nothing partial stays.
        """
        try:
            for folder in (self._engines, self._partial, self._locks):
                folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self._locks / f"{key}.lock"):
                self._sweep(key)
                if not force and self.find(key) is not None:
                    yield None
                    return
                partial = self._partial / f"{key}.{os.getpid()}"
                try:
                    partial.mkdir()
                    yield partial
                    self._publish(key, partial)
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
        except OSError as error:
            raise disk_error(error, self.root) from error

    def require(self, needed: int) -> None:
        """Raise BuildError unless ``needed`` bytes are free on the store's disk."""
        self.root.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.root).free
        if free < needed:
            raise BuildError(
                f"the disk is full: the build needs {human_bytes(needed)}, {human_bytes(free)} are free",
                where=str(self.root),
                fix=_FREE,
            )

    def ls(self) -> list[Entry]:
        """Every engine, newest first, with what a look at its sizes shows."""
        keys = sorted(path.name for path in self._engines.iterdir()) if self._engines.is_dir() else []
        entries = [entry for entry in map(self._entry, keys) if entry]
        return sorted(entries, key=lambda entry: entry.engine.manifest.created if entry.engine else "", reverse=True)

    def verify(self) -> list[Entry]:
        """Every engine, its files read whole and compared with their digests."""
        return [self._verified(entry) for entry in self.ls()]

    def gc(self, keep: Collection[str] | None = None) -> list[Entry]:
        """Remove what killed runs left, damaged engines and, where ``keep`` is given, every engine not in it.

        What another process is building or using under its lock is left alone. Returns what was removed.
        """
        doomed = [entry for entry in self.ls() if entry.faults or (keep is not None and entry.key not in keep)]
        removed = [entry for entry in doomed if self._remove(entry.key)]
        for partial in sorted(self._partial.iterdir()) if self._partial.is_dir() else []:
            key = partial.name.split(".")[0]
            with self._try_lock(key) as free:
                if free:
                    removed.append(Entry(key, None, _size(partial), ("left by a killed run",)))
                    shutil.rmtree(partial, ignore_errors=True)
        return removed

    def _entry(self, key: str) -> Entry | None:
        folder = self._engines / key
        if not folder.is_dir():
            return None
        try:
            engine = Engine.open(folder)
        except ProfileError as error:
            return Entry(key, None, _size(folder), (str(error),))
        manifest = engine.manifest
        faults = [] if manifest.key == key else [f"the manifest is of {manifest.key}"]
        for name in manifest.files:
            size = (folder / name).stat().st_size if (folder / name).is_file() else None
            if size is None:
                faults.append(f"{name} is missing")
            elif size != manifest.sizes.get(name):
                faults.append(f"{name} has {size} bytes, not {manifest.sizes.get(name)}")
        return Entry(key, engine, sum(manifest.sizes.values()), tuple(faults))

    def _verified(self, entry: Entry) -> Entry:
        if entry.engine is None or entry.faults:
            return entry
        folder, files = entry.engine.folder, entry.engine.manifest.files
        changed = [name for name, digest in files.items() if file_digest(folder / name) != digest]
        return Entry(entry.key, entry.engine, entry.bytes, tuple(f"{name} has changed" for name in changed))

    def _publish(self, key: str, partial: Path) -> None:
        manifest = Engine.open(partial).manifest
        if manifest.key != key:
            raise BuildError(f"the build of {key} wrote a manifest of {manifest.key}", where=str(partial))
        _sync(partial)
        final = self._engines / key
        if final.exists():
            # A folder cannot be replaced by a rename; readers that have the old files open keep them.
            old = self._partial / f"{key}.{os.getpid()}.old"
            final.rename(old)
            partial.rename(final)
            shutil.rmtree(old, ignore_errors=True)
        else:
            partial.rename(final)
        _sync_folder(self._engines)

    def _sweep(self, key: str) -> None:
        """Remove what a killed run of this key left; the caller holds the key's lock."""
        for left in self._partial.glob(f"{key}.*"):
            shutil.rmtree(left, ignore_errors=True)

    def _remove(self, key: str) -> bool:
        with self._try_lock(key) as free:
            if free:
                doomed = self._partial / f"{key}.{os.getpid()}.old"
                self._partial.mkdir(exist_ok=True)
                (self._engines / key).rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
            return free

    @contextmanager
    def _try_lock(self, key: str) -> Iterator[bool]:
        self._locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._locks / f"{key}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()


def file_digest(path: Path) -> str:
    """sha256 (hex) of a file's bytes."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def disk_error(error: OSError, where: Path) -> BuildError:
    """An error of the system as a BuildError: the disk is full, or what the system says."""
    if error.errno in _FULL:
        return BuildError(f"the disk is full: {error}", where=str(where), fix=_FREE)
    return BuildError(f"the build stopped: {error}", where=str(where))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _sync(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            _sync_folder(path)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
