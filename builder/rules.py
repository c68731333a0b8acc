"""The rules of ``specbuild check``: what must hold of a profile and its two models, as data."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from specbuild.builder import memory
from specbuild.builder.groups import GROUP_SIZES, group_size
from specbuild.builder.machine import Machine
from specbuild.builder.stacks import llama
from specbuild.builder.toolchain import INSTALL_EXPORT, Toolchain
from specbuild.errors import Fault
from specbuild.pair import Finding, ModelFacts, Pair, Role, Severity
from specbuild.profile import ModelSpec, Profile
from specbuild.units import GIB, human_bytes

PRECISIONS = {"openvino": ("fp16", "bf16", "int8", "int4")}
"""Stack → the weight precisions that it builds."""

_SHOWN = 5
"""Differences spelled out in one finding."""


@dataclass(frozen=True)
class Situation:
    """What the rules look at."""

    profile: Profile
    pair: Pair
    machine: Machine
    tools: Toolchain

    def models(self) -> Iterable[tuple[Role, ModelSpec, ModelFacts]]:
        """Both models with what the profile says of them."""
        yield "target", self.profile.target, self.pair.target
        yield "draft", self.profile.draft, self.pair.draft


@dataclass(frozen=True)
class Rule:
    """One rule: a stable id, what it means when it speaks, what it checks, and the check itself."""

    id: str
    severity: Severity
    title: str
    ask: Callable[[Situation], Iterable[Fault]]


def ask(situation: Situation) -> tuple[Finding, ...]:
    """What every rule found, in the order of ``RULES``."""
    return tuple(
        Finding(rule.id, rule.severity, fault.what, fault.where, fault.fix)
        for rule in RULES
        for fault in rule.ask(situation)
    )


# -- the engine ------------------------------------------------------------------------------------------------------


def _precision(now: Situation) -> Iterable[Fault]:
    known = PRECISIONS[now.profile.stack]
    for role, spec, _ in now.models():
        if spec.precision not in known:
            where = now.profile.where(role, "precision")
            yield Fault(f"the stack {now.profile.stack} has no {spec.precision}", where, f"use {', '.join(known)}")


def _weights(now: Situation) -> Iterable[Fault]:
    for role, _, facts in now.models():
        if llama.refusal(facts.config, facts.tensors) is None:
            for what in llama.weight_faults(facts.config, facts.tensors)[:_SHOWN]:
                yield Fault(f"{role}: {what}", str(facts.folder), "config.json and the weights must be of one model")


def _groups(now: Situation) -> Iterable[Fault]:
    for role, spec, facts in now.models():
        if spec.precision == "int4" and group_size(facts.tensors) is None:
            yield Fault(
                f"{role}: none of {', '.join(map(str, GROUP_SIZES))} columns divides the width of every weight",
                now.profile.where(role, "precision"),
                "use precision int8",
            )


def _exporter(now: Situation) -> Iterable[Fault]:
    for role, _, facts in now.models():
        refusal = llama.refusal(facts.config, facts.tensors)
        if refusal and not now.tools.exports:
            yield Fault(
                f"{role}: our graph exporter cannot build it ({refusal}), and optimum-intel is not installed",
                now.profile.where(role, "model"),
                INSTALL_EXPORT,
            )


# -- the tokenizer ---------------------------------------------------------------------------------------------------

_OTHER_TOKENIZER = "take a draft of the target's family: it must have been trained with the same tokenizer"


def _vocabulary(now: Situation) -> Iterable[Fault]:
    target, draft = now.pair.target.tokenizer.vocabulary, now.pair.draft.tokenizer.vocabulary
    yield from _unlike_ids(now, "the vocabularies differ", target, draft)


def _added(now: Situation) -> Iterable[Fault]:
    target, draft = now.pair.target.tokenizer, now.pair.draft.tokenizer
    if target.vocabulary == draft.vocabulary:  # else the rule above has named them
        yield from _unlike_ids(now, "the added tokens differ", target.added, draft.added)


def _unlike_ids(now: Situation, what: str, target: Mapping[str, int], draft: Mapping[str, int]) -> Iterable[Fault]:
    if target == draft:
        return
    unlike = [token for token in {**target, **draft} if target.get(token) != draft.get(token)]
    unlike.sort(key=lambda token: min(ids[token] for ids in (target, draft) if token in ids))
    shown = "; ".join(f"{token!r} is {_id(target, token)} and {_id(draft, token)}" for token in unlike[:_SHOWN])
    yield Fault(
        f"{what} in {len(unlike)} tokens, of {len(target)} in the target and {len(draft)} in the draft: {shown}",
        now.profile.where("draft", "model"),
        _OTHER_TOKENIZER,
    )


def _id(ids: Mapping[str, int], token: str) -> str:
    return str(ids[token]) if token in ids else "missing"


def _merges(now: Situation) -> Iterable[Fault]:
    target, draft = now.pair.target.tokenizer.merges, now.pair.draft.tokenizer.merges
    if target == draft:
        return
    pairs = itertools.zip_longest(target, draft)
    index, (left, right) = next((at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1])
    yield Fault(
        f"the merges differ: {len(target)} and {len(draft)}; number {index} is {left!r} and {right!r}",
        now.profile.where("draft", "model"),
        _OTHER_TOKENIZER,
    )


def _special(now: Situation) -> Iterable[Fault]:
    target, draft = now.pair.target.tokenizer.special_ids, now.pair.draft.tokenizer.special_ids
    for kind in target:
        if target[kind] != draft.get(kind):
            yield Fault(
                f"the {kind} token is {target[kind]} in the target and {draft.get(kind)} in the draft",
                now.profile.where("draft", "model"),
                "copy the target's tokenizer files into the draft's folder if the two share a vocabulary",
            )


def _pipeline(now: Situation) -> Iterable[Fault]:
    yield from _unlike_parts(now, ("normalizer", "pre_tokenizer", "decoder"), _OTHER_TOKENIZER)


def _post_processor(now: Situation) -> Iterable[Fault]:
    yield from _unlike_parts(now, ("post_processor",), "nothing to do: prompts are encoded by the target's")


def _unlike_parts(now: Situation, parts: tuple[str, ...], fix: str) -> Iterable[Fault]:
    target, draft = (json.loads(facts.tokenizer.pipeline) for _, _, facts in now.models())
    for part in parts:
        if target.get(part) != draft.get(part):
            what = f"the tokenizers' {part} differs: {_short(target.get(part))} and {_short(draft.get(part))}"
            yield Fault(what, now.profile.where("draft", "model"), fix)


def _short(part: object) -> str:
    text = json.dumps(part, ensure_ascii=False)
    return text if len(text) <= 100 else text[:99] + "…"


def _chat_template(now: Situation) -> Iterable[Fault]:
    target, draft = now.pair.target.tokenizer.chat_template, now.pair.draft.tokenizer.chat_template
    if target != draft:
        which = "only the target has" if draft is None else "only the draft has" if target is None else "they differ in"
        yield Fault(
            f"{which} a chat template: the draft may have been trained on other chats",
            now.profile.where("draft", "model"),
            "nothing to do: chats are written by the target's; expect a lower acceptance",
        )


def _eos(now: Situation) -> Iterable[Fault]:
    target, draft = set(now.pair.target.eos_ids), set(now.pair.draft.eos_ids)
    if not target:
        yield Fault("the target names no end token: only the output limit ends a request", str(now.pair.target.folder))
    elif target != draft:
        yield Fault(
            f"the end tokens differ: {sorted(target)} and {sorted(draft)}; the target's count",
            now.profile.where("draft", "model"),
        )


def _eos_range(now: Situation) -> Iterable[Fault]:
    for role, _, facts in now.models():
        for token in facts.eos_ids:
            if not 0 <= token < facts.vocab_size:
                what = f"{role}: the end token {token} is not below the vocabulary size {facts.vocab_size}"
                yield Fault(what, str(facts.folder), "correct generation_config.json")


# -- the head --------------------------------------------------------------------------------------------------------


def _tokens(facts: ModelFacts) -> int:
    """One more than the highest id of the tokenizer."""
    return max(facts.tokenizer.vocabulary.values(), default=-1) + 1


def _head_rows(now: Situation) -> Iterable[Fault]:
    for role, _, facts in now.models():
        if _tokens(facts) > facts.vocab_size:
            what = f"{role}: the tokenizer has ids up to {_tokens(facts) - 1}, the head {facts.vocab_size} rows"
            yield Fault(what, str(facts.folder), "name the folder that the model was saved in with its tokenizer")


def _head_padding(now: Situation) -> Iterable[Fault]:
    for role, _, facts in now.models():
        if facts.vocab_size > _tokens(facts):
            spare = facts.vocab_size - _tokens(facts)
            yield Fault(f"{role}: {spare} rows of the head belong to no token", str(facts.folder))


def _heads(now: Situation) -> Iterable[Fault]:
    target, draft = now.pair.target.vocab_size, now.pair.draft.vocab_size
    if target != draft:
        yield Fault(
            f"the heads differ: {target} rows in the target, {draft} in the draft; only shared ids can agree",
            now.profile.where("draft", "model"),
        )


def _draft_size(now: Situation) -> Iterable[Fault]:
    target, draft = (memory.weight_bytes(facts, spec.precision) for _, spec, facts in now.models())
    if draft * 2 > target:
        yield Fault(
            f"the draft reads {human_bytes(draft)} a token, the target {human_bytes(target)}: too close to gain",
            now.profile.where("draft", "model"),
            "take a draft of a quarter of the target or less",
        )


# -- the limits ------------------------------------------------------------------------------------------------------


def _limits(now: Situation) -> Iterable[Fault]:
    limits = now.profile.limits
    if limits.max_input_len >= limits.max_seq_len:
        yield Fault(
            f"max_input_len {limits.max_input_len} leaves no room for output in max_seq_len {limits.max_seq_len}",
            now.profile.where("limits", "max_input_len"),
            f"set max_input_len below {limits.max_seq_len}",
        )


def _context(now: Situation) -> Iterable[Fault]:
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


def _kv_request(now: Situation) -> Iterable[Fault]:
    yield from _kv_pool(now, 1, "one request")


def _kv_batch(now: Situation) -> Iterable[Fault]:
    limits = now.profile.limits
    whole = memory.kv_bytes(now.pair.target, limits.max_seq_len + limits.max_draft_len, now.profile.numerics)
    if whole <= limits.kv_cache_gib * GIB:
        yield from _kv_pool(now, limits.max_batch_size, f"{limits.max_batch_size} requests")


def _kv_pool(now: Situation, requests: int, words: str) -> Iterable[Fault]:
    limits = now.profile.limits
    tokens = requests * (limits.max_seq_len + limits.max_draft_len)
    for role, _, facts in now.models():
        needed = memory.kv_bytes(facts, tokens, now.profile.numerics)
        if needed > limits.kv_cache_gib * GIB:
            yield Fault(
                f"{role}: {words} of {limits.max_seq_len} tokens need a KV cache of {human_bytes(needed)}, "
                f"the pool has {limits.kv_cache_gib} GiB",
                now.profile.where("limits", "kv_cache_gib"),
                f"set kv_cache_gib to {-(-needed // GIB)}, or lower max_seq_len or max_batch_size",
            )


def _memory(now: Situation) -> Iterable[Fault]:
    yield from _over(now, now.machine.total, f"the {now.machine.limited_by} has")


def _memory_now(now: Situation) -> Iterable[Fault]:
    if memory.total(memory.plan(now.profile, now.pair)) <= now.machine.total:
        yield from _over(now, now.machine.available, "free is")


def _over(now: Situation, bound: int, words: str) -> Iterable[Fault]:
    rows = memory.plan(now.profile, now.pair)
    if memory.total(rows) > bound:
        yield Fault(
            f"serving may need {human_bytes(memory.total(rows))}, {words} {human_bytes(bound)}:\n{memory.table(rows)}",
            now.profile.where("limits", "kv_cache_gib"),
            "lower kv_cache_gib or the precision of the weights",
        )


def _memory_plan(now: Situation) -> Iterable[Fault]:
    rows = memory.plan(now.profile, now.pair)
    yield Fault(f"memory while serving, at most:\n{memory.table(rows)}")


RULES = (
    Rule("precision", "error", "The stack builds the precision that each model asks for.", _precision),
    Rule("weights", "error", "The stored weights are those that config.json describes.", _weights),
    Rule("int4-groups", "error", "A group of 128, 64 or 32 columns divides the width of every int4 weight.", _groups),
    Rule("exporter", "warning", "Each model can be exported with what is installed.", _exporter),
    Rule("vocabulary", "error", "Every token has the same id in both models.", _vocabulary),
    Rule("added-tokens", "error", "The same tokens are added to both vocabularies.", _added),
    Rule("merges", "error", "Both tokenizers merge in the same order.", _merges),
    Rule("special-ids", "error", "The bos, eos, pad and unk tokens are the same.", _special),
    Rule("tokenizer-pipeline", "error", "Normalizer, pre-tokenizer and decoder are the same.", _pipeline),
    Rule("post-processor", "warning", "Both tokenizers add the same special tokens around a text.", _post_processor),
    Rule("chat-template", "warning", "Both models were given the same chat template.", _chat_template),
    Rule("eos", "warning", "Both models end a generation with the same tokens.", _eos),
    Rule("eos-range", "error", "Every end token is a token of the model.", _eos_range),
    Rule("head-rows", "error", "The head has a row for every token of the tokenizer.", _head_rows),
    Rule("head-padding", "info", "How many rows of the head belong to no token.", _head_padding),
    Rule("heads", "warning", "Both heads have the same number of rows.", _heads),
    Rule("draft-size", "warning", "The draft reads at most half the bytes of the target.", _draft_size),
    Rule("limits", "error", "A prompt of max_input_len leaves room for output within max_seq_len.", _limits),
    Rule("context", "error", "Both models have positions for max_seq_len and a draft of max_draft_len.", _context),
    Rule("kv-request", "error", "One request of max_seq_len fits the KV pool of each model.", _kv_request),
    Rule("kv-batch", "warning", "max_batch_size requests of max_seq_len fit the KV pool of each model.", _kv_batch),
    Rule("memory", "error", "Weights and KV pools fit the memory of the machine or its container.", _memory),
    Rule("memory-now", "warning", "Weights and KV pools fit the memory that is free now.", _memory_now),
    Rule("memory-plan", "info", "What serving the pair takes of memory, at most.", _memory_plan),
)
"""Every rule of ``specbuild check``, in the order that findings are shown."""
