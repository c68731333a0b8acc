"""What a number was measured on: the identity of every measurement."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import specbuild
from specbuild.units import human_bytes

LIBRARIES = ("openvino", "openvino-genai", "openvino-tokenizers", "numpy")
PASSING = frozenset({"load_average", "memory_free"})
"""Keys that say how the machine was at the moment, not what it is."""


def environment() -> dict[str, str]:
    """CPU, memory, load, Python and library versions, as words."""
    memory = _proc("/proc/meminfo")
    found = {
        "cpu": _proc("/proc/cpuinfo").get("model name") or platform.processor() or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0),
        "memory": _kib(memory.get("MemTotal")),
        "memory_free": _kib(memory.get("MemAvailable")),
        "load_average": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "specbuild": specbuild.__version__,
    }
    found |= {name: _version(name) for name in LIBRARIES}
    return {key: value for key, value in found.items() if value}


def identity(found: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that stays the same while nothing is installed or moved."""
    return {key: value for key, value in found.items() if key not in PASSING}


def _version(name: str) -> str:
    """The version of an installed distribution; empty where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _proc(path: str) -> dict[str, str]:
    """The ``key: value`` lines of a file below /proc, the first of each key; empty where the system has none."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {key.strip(): value.strip() for key, value in reversed(list(pairs))}


def _kib(value: str | None) -> str:
    return human_bytes(int(value.split()[0]) * 1024) if value else ""
