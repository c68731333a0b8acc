"""Numbers to words for people; inside the program times are integer nanoseconds and sizes are bytes."""

from __future__ import annotations

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
MIB = 1 << 20
GIB = 1 << 30


def human_bytes(count: float) -> str:
    """``377487360`` → ``360.0 MiB``; powers of 1024."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def human_seconds(seconds: float) -> str:
    """``0.0123`` → ``12 ms``, ``3.21`` → ``3.2 s``, ``125`` → ``2 min 05 s``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"


def ms(nanoseconds: float) -> float:
    """Nanoseconds to milliseconds."""
    return nanoseconds / NS_PER_MS
