"""A trace in two halves that share no conversation, each in groups of requests that are replayed together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from specbuild.runtime.arrivals import Arrivals, Load
from specbuild.runtime.prepare import Prepared
from specbuild.trace import Request, Trace

BLOCK = 8
"""Consecutive requests of a group at recorded times: enough for their gaps and bursts to be kept."""
GOLDEN = 0.6180339887498949
Item = TypeVar("Item")


@dataclass(frozen=True)
class Halves:
    """``first`` finds the candidates, ``held_out`` confirms them."""

    first: tuple[Request, ...]
    held_out: tuple[Request, ...]


def portion(trace: Trace, arrivals: Arrivals, count: int | None) -> Trace:
    """``count`` requests of the trace, evenly spread; at recorded times the first ones.

    A trace that is thinned at its recorded times would be a lighter load.
    """
    if arrivals.kind == "closed" or count is None or count >= len(trace.requests):
        return trace.take(count)
    return Trace.of(trace.requests[:count])


def halves(trace: Trace, arrivals: Arrivals) -> Halves:
    """Both halves see the whole length of the trace, and no conversation is in both.

    In a closed loop conversations alternate. At recorded times a half made of every other conversation would have half
    the load, so whole blocks alternate; a conversation that reaches into a block of the other half loses those turns.
    """
    if arrivals.kind == "closed":
        first, held_out = trace.halves()
        return Halves(first.requests, held_out.requests)
    home: dict[str, int] = {}
    sides: tuple[list[Request], list[Request]] = ([], [])
    for index, request in enumerate(trace.requests):
        side = index // BLOCK % 2
        if home.setdefault(request.session or request.id, side) == side:
            sides[side].append(request)
    return Halves(tuple(sides[0]), tuple(sides[1]))


def groups(half: Sequence[Prepared], arrivals: Arrivals, slots: int) -> tuple[Load, ...]:
    """Groups in an order of which every beginning is spread over the whole half.

    A closed loop of n at once measures n requests a group, fewer where the half is small; others lead in and fill up,
    so that all of them run among n. At recorded times a group is a block, and the block behind it keeps arriving.
    ``slots``: requests that run at once at most.
    """
    if arrivals.kind == "closed":
        size = max(1, min(min(arrivals.concurrency, slots), len(half) // 4))
        ordered = spread(half)
        return tuple(
            _closed(ordered[first : first + size], ordered, arrivals.concurrency)
            for first in range(0, len(ordered) - size + 1, size)
        )
    blocks = [half[first : first + BLOCK] for first in range(0, len(half), BLOCK)]
    pairs = zip(blocks, [*blocks[1:], blocks[0]], strict=True)
    return tuple(spread([Load(block, fillers=_behind(block, following)) for block, following in pairs]))


def _closed(some: Sequence[Prepared], ordered: Sequence[Prepared], concurrency: int) -> Load:
    if concurrency == 1:
        return Load(some)
    measured = {request.id for request in some}
    others = [request for request in ordered if request.id not in measured] or list(some)
    lead = [_part(others[index % len(others)], index, concurrency) for index in range(concurrency)]
    return Load(some, lead=lead, fillers=others)


def _part(request: Prepared, index: int, count: int) -> Prepared:
    """The request cut so that ``count`` of them end one after the other."""
    tokens = -(-request.max_tokens * (index + 1) // count)
    return replace(request, id=f"{request.id}#lead{index}", max_tokens=tokens)


def _behind(block: Sequence[Prepared], following: Sequence[Prepared]) -> list[Prepared]:
    """The requests of ``following`` under other ids, arriving right behind ``block`` at their own gaps."""
    gap = (block[-1].arrival_ns - block[0].arrival_ns) // max(len(block) - 1, 1)
    start = block[-1].arrival_ns + gap
    shift = start - following[0].arrival_ns
    return [replace(request.again(0), arrival_ns=request.arrival_ns + shift) for request in following]


def spread(items: Sequence[Item]) -> list[Item]:
    """The same items, reordered so that every beginning is spread evenly (a golden ratio sequence)."""
    order = sorted(range(len(items)), key=lambda index: index * GOLDEN % 1)
    return [items[index] for index in order]
