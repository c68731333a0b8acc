"""The memory that this process may use: the machine's, or its container's where that is less."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class Machine:
    """Memory in bytes."""

    total: int
    """What processes here may use at most."""
    available: int
    """What is free now, without swapping."""
    limited_by: str
    """``machine`` or ``container``: what sets ``total``."""


def read(root: Path = Path("/")) -> Machine:
    """Memory from ``/proc/meminfo`` and the control groups (version 2 and 1) that this process is in."""
    fields = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines() if ":" in line)
    total, available = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    limits = [limit for limit in _group_limits(root) if limit[0] < total]
    if not limits:
        return Machine(total, available, "machine")
    limit = min(limits)[0]
    return Machine(limit, min([available, *(max(size - used, 0) for size, used in limits)]), "container")


def _group_limits(root: Path) -> list[tuple[int, int]]:
    """(limit, used) of every control group of memory above this process, its own first."""
    found = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base, names = root / "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        relative = PurePosixPath(path.lstrip("/"))
        for group in (relative, *relative.parents):
            limit, used = (_number(base / group / name) for name in names)
            if limit is not None:
                found.append((limit, used or 0))
    return found


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
