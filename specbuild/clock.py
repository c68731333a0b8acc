"""The one clock: integer nanoseconds, monotonic."""

from __future__ import annotations

import time
from datetime import datetime, timezone

now_ns = time.perf_counter_ns
"""Nanoseconds of a monotonic clock; every timestamp of a timeline comes from here."""


def utc_stamp() -> str:
    """The wall time as ISO 8601 in UTC, whole seconds; for labels, never for durations."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
