"""Rules of ``specbuild check`` on the limits: context, KV pools and memory."""

from __future__ import annotations

from collections.abc import Iterable

from specbuild.builder import memory as plans
from specbuild.builder.situation import Situation
from specbuild.errors import Fault
from specbuild.units import GIB, human_bytes


def context(now: Situation) -> Iterable[Fault]:
    """Both models have positions for max_seq_len and a draft of max_draft_len."""
    limits = now.profile.limits
    needed = limits.max_seq_len + limits.max_draft_len
    for role, _, facts in now.models():
        if needed > facts.max_position:
            most = facts.max_position - limits.max_draft_len
            yield Fault(
                f"max_seq_len {limits.max_seq_len} and max_draft_len {limits.max_draft_len} need {needed} positions, "
                f"the {role} has {facts.max_position}",
                now.profile.where("limits", "max_seq_len"),
                f"set max_seq_len to {most} or less" if most > 1 else f"take another {role}",
            )


def kv_request(now: Situation) -> Iterable[Fault]:
    """One request of max_seq_len fits the KV pool of each model."""
    yield from _kv_pool(now, 1, "one request")


def kv_batch(now: Situation) -> Iterable[Fault]:
    """max_batch_size requests of max_seq_len fit the KV pool of each model."""
    limits = now.profile.limits
    whole = plans.kv_bytes(now.pair.target, limits.max_seq_len + limits.max_draft_len, now.profile.numerics)
    if whole <= limits.kv_cache_gib * GIB:
        yield from _kv_pool(now, limits.max_batch_size, f"{limits.max_batch_size} requests")


def _kv_pool(now: Situation, requests: int, words: str) -> Iterable[Fault]:
    limits = now.profile.limits
    tokens = requests * (limits.max_seq_len + limits.max_draft_len)
    for role, _, facts in now.models():
        needed = plans.kv_bytes(facts, tokens, now.profile.numerics)
        if needed > limits.kv_cache_gib * GIB:
            yield Fault(
                f"{role}: {words} of {limits.max_seq_len} tokens need a KV cache of {human_bytes(needed)}, "
                f"the pool has {limits.kv_cache_gib} GiB",
                now.profile.where("limits", "kv_cache_gib"),
                f"set kv_cache_gib to {-(-needed // GIB)}, or lower max_seq_len or max_batch_size",
            )


def memory(now: Situation) -> Iterable[Fault]:
    """Weights and KV pools fit the memory of the machine or its container."""
    yield from _over(now, now.machine.total, f"the {now.machine.limited_by} has")


def memory_now(now: Situation) -> Iterable[Fault]:
    """Weights and KV pools fit the memory that is free now."""
    if plans.total(plans.plan(now.profile, now.pair)) <= now.machine.total:
        yield from _over(now, now.machine.available, "free is")


def _over(now: Situation, bound: int, words: str) -> Iterable[Fault]:
    rows = plans.plan(now.profile, now.pair)
    if plans.total(rows) > bound:
        yield Fault(
            f"serving may need {human_bytes(plans.total(rows))}, {words} {human_bytes(bound)}:\n{plans.table(rows)}",
            now.profile.where("limits", "kv_cache_gib"),
            "lower kv_cache_gib or the precision of the weights",
        )


def memory_plan(now: Situation) -> Iterable[Fault]:
    """What serving the pair takes of memory, at most."""
    rows = plans.plan(now.profile, now.pair)
    yield Fault(f"memory while serving, at most:\n{plans.table(rows)}")
