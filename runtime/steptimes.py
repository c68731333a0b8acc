"""How long a round takes, measured on the running engines: over draft length and requests at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import Literal

import numpy as np
import numpy.typing as npt

from specbuild.errors import ServerError
from specbuild.plan import Graph
from specbuild.record import Record
from specbuild.runtime.policy import fixed
from specbuild.runtime.prepare import Prepared
from specbuild.runtime.replay import REAL_CLOCK, Clock, Inbox
from specbuild.runtime.session import Chunk, Generate, Handle, Session
from specbuild.runtime.stats import rising
from specbuild.units import NS_PER_MS, NS_PER_S

Floats = npt.NDArray[np.float64]
ROUNDS = 4
"""Rounds timed of one setting in one sweep."""
MOST_SWEEPS = 6
NOISY = 0.3
"""Relative interquartile range above which a setting's rounds are called noisy."""
POINTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
PATIENCE_NS = 120 * NS_PER_S
"""Longest time that one setting may take."""


class StepTimes(Record):
    """Round times of one graph; a round between two measured settings is interpolated."""

    schema_version: Literal[1] = 1
    graph: Graph
    batch_sizes: tuple[int, ...]
    """Requests at once, ascending."""
    draft_lens: tuple[int, ...]
    """Ascending; 0 is the target alone."""
    median_ms: tuple[tuple[float, ...], ...]
    """[batch size][draft_len]."""
    spread: tuple[tuple[float, ...], ...]
    """[batch size][draft_len]: interquartile range over median."""
    rounds: tuple[tuple[int, ...], ...]
    """[batch size][draft_len]: rounds timed."""

    def round_ms(self, draft_len: float, batch_size: float) -> float:
        """The time of one round, linear between the measured settings and flat outside.

        A longer draft never makes a round shorter: where noise says so, neighbours share their mean.
        """
        rows = [rising(row, weights) for row, weights in zip(self.median_ms, self.rounds, strict=True)]
        column = [float(np.interp(draft_len, self.draft_lens, row)) for row in rows]
        return float(np.interp(batch_size, self.batch_sizes, column))

    @property
    def noise(self) -> float:
        """The median setting's spread."""
        return float(np.median(self.spread))

    @property
    def noisy(self) -> bool:
        """Rounds of one setting differ so much that something else must be using the machine."""
        return self.noise > NOISY


class StepTimesFile(Record):
    """Step times by graph, as they are kept."""

    schema_version: Literal[1] = 1
    pair_digest: str
    numerics: str
    environment: dict[str, str]
    graphs: dict[Graph, StepTimes]


def points(max_draft_len: int) -> tuple[int, ...]:
    """The draft lengths that are measured; those between are interpolated."""
    return tuple(sorted({*(point for point in POINTS if point < max_draft_len), max_draft_len}))


def time_steps(
    session: Session,
    prompts: Sequence[Prepared],
    batch_sizes: Sequence[int],
    max_draft_len: int,
    *,
    budget_ns: int,
    clock: Clock = REAL_CLOCK,
    on_done: Callable[[int], None] | None = None,
) -> StepTimes:
    """Time rounds of short runs over every batch size and draft length, in sweeps up and down so that drift cancels.

    A second sweep follows unless the first alone took ``budget_ns``, then further ones while that lasts. Raises
    ServerError where the session fails.
    """
    settings = [(batch, draft_len) for batch in sorted(set(batch_sizes)) for draft_len in points(max_draft_len)]
    gaps: dict[tuple[int, int], list[Floats]] = {setting: [] for setting in settings}
    begun = clock.now_ns()
    for sweep in range(MOST_SWEEPS):
        swept = clock.now_ns()
        for batch, draft_len in settings if sweep % 2 == 0 else reversed(settings):
            some = [prompts[index % len(prompts)].again(index) for index in range(batch)]
            gaps[batch, draft_len].append(_rounds(session, some, draft_len, clock))
        if on_done is not None:
            on_done(sweep + 1)
        now = clock.now_ns()
        if now - begun + (now - swept if sweep else 0) > budget_ns:
            break
    return _table(session, {setting: np.concatenate(found) for setting, found in gaps.items()})


def _table(session: Session, gaps: dict[tuple[int, int], Floats]) -> StepTimes:
    batches, lengths = (tuple(sorted({setting[place] for setting in gaps})) for place in (0, 1))
    rows = [[gaps[batch, draft_len] for draft_len in lengths] for batch in batches]
    return StepTimes(
        graph="fused" if session.graph == "fused" else "orchestrated",
        batch_sizes=batches,
        draft_lens=lengths,
        median_ms=tuple(tuple(float(np.median(cell)) for cell in row) for row in rows),
        spread=tuple(tuple(_spread(cell) for cell in row) for row in rows),
        rounds=tuple(tuple(len(cell) for cell in row) for row in rows),
    )


def _spread(values: Floats) -> float:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return float((high - low) / middle) if middle else 0.0


def _rounds(session: Session, prompts: Sequence[Prepared], draft_len: int, clock: Clock) -> Floats:
    """Time between chunks, ms, of ``ROUNDS`` rounds during which every prompt was being decoded."""
    inbox: Inbox = SimpleQueue()
    handles: list[Handle] = []
    chunks: dict[int, list[Chunk]] = {}
    longest = (ROUNDS + 1 + 2 * len(prompts)) * (draft_len + 1) + 1
    for key, prompt in enumerate(prompts):
        chunks[key] = []
        handles.append(session.submit(_greedy(prompt, draft_len, longest), _into(inbox, key)))
    deadline = clock.now_ns() + PATIENCE_NS
    cancelled = False
    while not all(found and found[-1].finish for found in chunks.values()):
        event = clock.wait(inbox, deadline)
        if event is None:
            raise ServerError("the session gave no round within two minutes while its rounds were timed")
        chunks[event[0]].append(event[1])
        if event[1].finish == "error":
            raise ServerError(f"the session failed while its rounds were timed: {event[1].detail}")
        if not cancelled and _enough(chunks):
            cancelled = True
            for handle in handles:
                handle.cancel()
    return _gaps(chunks)


def _greedy(prompt: Prepared, draft_len: int, max_tokens: int) -> Generate:
    policy = fixed(draft_len)
    return Generate(prompt.id, prompt.token_ids, max_tokens, policy, timeout_ns=PATIENCE_NS, ignore_eos=True)


def _into(inbox: Inbox, key: int) -> Callable[[Chunk], None]:
    return lambda chunk: inbox.put((key, chunk))


def _begun(chunks: Iterable[Sequence[Chunk]]) -> int | None:
    """When the last request had its first round behind it, in which the draft reads the prompt; None before that."""
    seconds = [found[1].t_ns if len(found) > 1 else None for found in chunks]
    return None if None in seconds else max(time for time in seconds if time is not None)


def _enough(chunks: dict[int, list[Chunk]]) -> bool:
    """Whether every request had ``ROUNDS`` rounds since then."""
    begun = _begun(chunks.values())
    return begun is not None and all(sum(chunk.t_ns > begun for chunk in found) >= ROUNDS for found in chunks.values())


def _gaps(chunks: dict[int, list[Chunk]]) -> Floats:
    carried = [[chunk for chunk in found if chunk.token_ids] for found in chunks.values()]
    begun = _begun(carried)
    ended = min((found[-1].t_ns for found in carried if found), default=0)
    times = [np.array([chunk.t_ns for chunk in found], np.int64) for found in carried]
    gaps: Floats = np.concatenate(
        [np.diff(one[(one >= begun) & (one <= ended)]) if begun is not None else np.empty(0) for one in times]
    )
    if not len(gaps):
        raise ServerError("requests ended before a round could be timed", fix="raise limits.max_seq_len")
    return gaps / NS_PER_MS
