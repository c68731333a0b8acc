"""Digests of model files, remembered by what the file system says of them, so that a warm run reads no weights."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from specbuild.record import write_atomically
from specbuild.store import file_digest

_SETTLED_NS = 2_000_000_000
"""A file changed more recently than this is hashed again: a second write could bear the same time stamp."""


class DigestCache:
    """sha256 by path, inode, size, and times of change; kept in one JSON file that may be deleted at any time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, list[int | str]] = _load(file)
        self._changed = False

    def sha256(self, path: Path) -> str:
        """The digest of a file's bytes. Raises OSError where it cannot be read."""
        real = path.resolve()
        stat = real.stat()
        identity: list[int | str] = [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        known = self._known.get(str(real))
        if known and known[:-1] == identity:
            return str(known[-1])
        digest = file_digest(real)
        if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > _SETTLED_NS:
            self._known[str(real)] = [*identity, digest]
            self._changed = True
        return digest

    def save(self) -> None:
        """Write what was learned; entries of files that are gone are dropped."""
        if self._changed:
            merged = {**_load(self._file), **self._known}
            kept = {path: entry for path, entry in merged.items() if os.path.exists(path)}  # noqa: PTH110 - plain text
            write_atomically(self._file, json.dumps(kept).encode())
            self._changed = False


def _load(file: Path) -> dict[str, list[int | str]]:
    try:
        known = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    valid = isinstance(known, dict) and all(isinstance(entry, list) and len(entry) == 5 for entry in known.values())
    return known if valid else {}
