"""Numbers to words for people; inside the program times are integer nanoseconds and sizes are bytes."""

from __future__ import annotations

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
MIB = 1 << 20
GIB = 1 << 30


def human_bytes(count: float) -> str:
    """``377487360`` → ``360.0 MiB``; powers of 1024."""
    for unit in ("B", "KiB", "MiB"):
        text = f"{count:.0f}" if unit == "B" else f"{count:.1f}"
        if abs(float(text)) < 1024:
            return f"{text} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def human_seconds(seconds: float) -> str:
    """``0.0123`` → ``12 ms``, ``3.21`` → ``3.2 s``, ``125`` → ``2 min 05 s``, ``7380`` → ``2 h 03 min``."""
    if round(seconds * 1000) < 1000:
        return f"{seconds * 1000:.0f} ms"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    if round(seconds) < 3600:
        return f"{round(seconds) // 60} min {round(seconds) % 60:02d} s"
    return f"{round(seconds / 60) // 60} h {round(seconds / 60) % 60:02d} min"


def ms(nanoseconds: float) -> float:
    """Nanoseconds to milliseconds."""
    return nanoseconds / NS_PER_MS
