"""The plan: for every budget the policy that was chosen, what it promises, and why."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from specbuild.profile import Budget, Numerics
from specbuild.record import Record

Graph = Literal["fused", "orchestrated"]


class Band(Record):
    """Requests with at most ``max_prompt_len`` prompt tokens (None: all others) draft ``draft_len`` tokens a round."""

    max_prompt_len: int | None
    draft_len: Annotated[int, Field(ge=0)]


class PolicySpec(Record):
    """How many tokens the draft proposes in a round, as data; ``runtime/policy.py`` executes it.

    Bands rise by ``max_prompt_len`` and the last one, None, takes all other requests. One band is a fixed length; its
    0 is off.
    """

    bands: Annotated[tuple[Band, ...], Field(min_length=1)]

    @field_validator("bands")
    @classmethod
    def _rising(cls, bands: tuple[Band, ...]) -> tuple[Band, ...]:
        limits = [band.max_prompt_len for band in bands[:-1]]
        given = [limit for limit in limits if limit is not None]
        if bands[-1].max_prompt_len is not None or len(given) < len(limits) or given != sorted(set(given)):
            raise ValueError("bands rise by max_prompt_len, and the last one has none")
        return bands

    @classmethod
    def fixed(cls, draft_len: int) -> PolicySpec:
        """The same draft_len for every request; 0 is off."""
        return cls(bands=(Band(max_prompt_len=None, draft_len=draft_len),))

    @property
    def is_off(self) -> bool:
        """No request ever speculates."""
        return all(band.draft_len == 0 for band in self.bands)

    @property
    def max_draft_len(self) -> int:
        """The longest draft of any band."""
        return max(band.draft_len for band in self.bands)

    def __str__(self) -> str:
        if self.is_off:
            return "off"
        if len(self.bands) == 1:
            return f"draft_len {self.max_draft_len}"
        return ", ".join(
            f"{'≤' + str(band.max_prompt_len) if band.max_prompt_len is not None else 'else'}: {band.draft_len}"
            for band in self.bands
        )


class Interval(Record):
    """A point estimate with its 95% bootstrap interval."""

    value: float
    low: float
    high: float


class Measured(Record):
    """What replaying the trace under one policy gave."""

    policy: PolicySpec
    requests: int
    output_tokens_per_s: float
    quantiles_ms: dict[str, float]
    """``ttft_p50``, ``tpot_p95``, ``e2e_p99`` ... → ms; a quantile that the sample cannot support is absent."""
    goodput_per_s: dict[str, float]
    """Budget name → requests per second that met it."""
    acceptance_per_position: tuple[float, ...]
    """Of the rounds that drafted more than i tokens, the share that accepted more than i."""
    acceptance_length: float
    """1 + accepted / rounds that drafted; 1 where none did."""
    tokens_per_round: float
    """Output tokens after a request's first chunk, per round, rounds without a draft included."""


class Candidate(Record):
    """One draft length in the prediction: evidence over step times."""

    draft_len: int
    tokens_per_round: float
    round_ms: float
    tpot_ms: float
    """Predicted mean time per output token."""
    speedup: float
    """Predicted ratio to off."""
    replayed: Interval | None = None
    """The measured ratio to off, for the few lengths that were replayed."""


class Choice(Record):
    """The policy of one budget."""

    policy: PolicySpec
    meets_budget: bool
    """Whether the confirming replay met the budget (``max_throughput`` is always met)."""
    measured: Measured
    speedup_over_off: Interval
    """Chosen over off: output tokens per second of request time, paired by request on the held-out half (in a closed
    loop this is the ratio of throughput); 1 where off was chosen."""
    predicted_tokens_per_round: float
    """From the evidence of the same held-out requests."""
    confirmed: bool
    """The prediction agreed with the confirming replay within ``bound``."""
    reasons: tuple[str, ...]
    """Why this policy, why not one longer and one shorter; for off, the arithmetic."""


class Plan(Record):
    """A chosen policy per budget, with what it was measured on."""

    schema_version: Literal[1] = 1
    key: str
    """sha256 of everything that the tuning depended on; the same key again means that the plan is current."""
    profile: str
    pair_digest: str
    trace_digest: str
    numerics: Numerics
    graph: Graph
    """The graph that serves this plan."""
    arrivals: str
    """How requests arrived while tuning, such as ``closed, 1 at once``."""
    requests: dict[str, int]
    """How many requests were used: ``trace``, ``baseline``, ``held_out``."""
    off: Measured
    """The target alone on the held-out half."""
    candidates: tuple[Candidate, ...]
    choices: dict[str, Choice]
    """Budget name → choice."""
    budgets: dict[str, Budget] = Field(default_factory=dict)
    """Budget name → what the profile asked of it."""
    evidence_digest: str
    environment: dict[str, str]
    """Machine, versions, load: what every figure here was measured on."""
    graphs_compared: tuple[str, ...] = ()
    """One line per graph that was measured, with its figures."""
    notes: tuple[str, ...] = ()
    created: str
