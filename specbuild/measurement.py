"""What a replay gives: a timeline in memory, and the measurement that is kept of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from specbuild.plan import Measured
from specbuild.profile import Numerics
from specbuild.record import Record

Outcome = Literal["stop", "length", "cancelled", "timeout", "error"]
"""``stop``: an end token; ``length``: the output limit; the others did not finish."""


@dataclass(frozen=True)
class RequestTimes:
    """One request of a timeline; all times are nanoseconds of the one clock."""

    id: str
    prompt_len: int
    scheduled_ns: int
    """When the schedule wanted it sent."""
    sent_ns: int
    token_ns: npt.NDArray[np.int64] = field(repr=False)
    """int64 [tokens]: arrival of each output token (those of one chunk share a time)."""
    tokens: npt.NDArray[np.int32] = field(repr=False)
    """int32 [tokens]: the output."""
    drafted: npt.NDArray[np.int32] = field(repr=False)
    """int32 [rounds]: tokens proposed in each round."""
    accepted: npt.NDArray[np.int32] = field(repr=False)
    """int32 [rounds]: of these accepted; never counts the bonus token."""
    outcome: Outcome
    detail: str = ""
    """For an outcome that did not finish: the reason."""


@dataclass(frozen=True)
class Timeline:
    """All requests of one replay, and when it began and ended (ns)."""

    requests: tuple[RequestTimes, ...]
    """The measured ones, in the order in which they were sent."""
    start_ns: int
    """When the first was due."""
    end_ns: int
    """When the last ended."""
    fillers: tuple[RequestTimes, ...] = ()
    """Ran beside the measured ones to keep the load; their tokens count, their latency does not."""
    unsent: int = 0
    """Requests that a hard end or an interrupt kept from being sent."""
    interrupted: bool = False


class Measurement(Record):
    """A kept replay with everything that it was measured on."""

    schema_version: Literal[1] = 1
    profile: str
    pair_digest: str
    trace_digest: str
    numerics: Numerics
    graph: str
    arrivals: str
    measured: Measured
    outcomes: dict[str, int]
    """Outcome → requests."""
    left_out: dict[str, int] = Field(default_factory=dict)
    """Why requests of the trace were not replayed → how many."""
    lag_ms: dict[str, float]
    """How late requests were sent against their schedule: ``p50``, ``p99`` where the sample supports it, ``max``."""
    unsent: int = 0
    """Requests that a hard end or an interrupt kept from being sent."""
    environment: dict[str, str]
    interrupted: bool = False
    created: str


class Measurements(Record):
    """The kept replays of one tuning, off first."""

    schema_version: Literal[1] = 1
    measurements: tuple[Measurement, ...]
