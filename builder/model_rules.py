"""Rules of ``specbuild check`` on each model: weights, precision, head, size."""

from __future__ import annotations

from collections.abc import Iterable

from specbuild.builder import memory
from specbuild.builder.groups import GROUP_SIZES, group_size
from specbuild.builder.situation import SHOWN, Situation
from specbuild.builder.stacks import llama
from specbuild.builder.toolchain import INSTALL_EXPORT
from specbuild.errors import Fault
from specbuild.pair import ModelFacts
from specbuild.units import human_bytes

PRECISIONS = {"openvino": ("fp16", "bf16", "int8", "int4")}
"""Stack → the weight precisions that it builds."""


def precision(now: Situation) -> Iterable[Fault]:
    """The stack builds the precision that each model asks for."""
    known = PRECISIONS[now.profile.stack]
    for role, spec, _ in now.models():
        if spec.precision not in known:
            where = now.profile.where(role, "precision")
            yield Fault(f"the stack {now.profile.stack} has no {spec.precision}", where, f"use {', '.join(known)}")


def weights(now: Situation) -> Iterable[Fault]:
    """The stored weights are those that config.json describes."""
    for role, _, facts in now.models():
        if llama.refusal(facts.config, facts.tensors) is None:
            for what in llama.weight_faults(facts.config, facts.tensors)[:SHOWN]:
                yield Fault(f"{role}: {what}", str(facts.folder), "config.json and the weights must be of one model")


def groups(now: Situation) -> Iterable[Fault]:
    """A group of 128, 64 or 32 columns divides the width of every int4 weight."""
    for role, spec, facts in now.models():
        if spec.precision == "int4" and group_size(facts.tensors) is None:
            yield Fault(
                f"{role}: none of {', '.join(map(str, GROUP_SIZES))} columns divides the width of every weight",
                now.profile.where(role, "precision"),
                "use precision int8",
            )


def exporter(now: Situation) -> Iterable[Fault]:
    """Each model can be exported with what is installed."""
    for role, _, facts in now.models():
        refusal = llama.refusal(facts.config, facts.tensors)
        if refusal and not now.tools.exports:
            yield Fault(
                f"{role}: our graph exporter cannot build it ({refusal}), and optimum-intel is not installed",
                now.profile.where(role, "model"),
                INSTALL_EXPORT,
            )


def _tokens(facts: ModelFacts) -> int:
    """One more than the highest id of the tokenizer."""
    return max(facts.tokenizer.vocabulary.values(), default=-1) + 1


def head_rows(now: Situation) -> Iterable[Fault]:
    """The head has a row for every token of the tokenizer."""
    for role, _, facts in now.models():
        if _tokens(facts) > facts.vocab_size:
            what = f"{role}: the tokenizer has ids up to {_tokens(facts) - 1}, the head {facts.vocab_size} rows"
            yield Fault(what, str(facts.folder), "name the folder that the model was saved in with its tokenizer")


def head_padding(now: Situation) -> Iterable[Fault]:
    """How many rows of the head belong to no token."""
    for role, _, facts in now.models():
        if facts.vocab_size > _tokens(facts):
            spare = facts.vocab_size - _tokens(facts)
            yield Fault(f"{role}: {spare} rows of the head belong to no token", str(facts.folder))


def heads(now: Situation) -> Iterable[Fault]:
    """Both heads have the same number of rows."""
    target, draft = now.pair.target.vocab_size, now.pair.draft.vocab_size
    if target != draft:
        yield Fault(
            f"the heads differ: {target} rows in the target, {draft} in the draft; only shared ids can agree",
            now.profile.where("draft", "model"),
        )


def draft_size(now: Situation) -> Iterable[Fault]:
    """The draft reads at most half the bytes of the target."""
    target, draft = (memory.weight_bytes(facts, spec.precision) for _, spec, facts in now.models())
    if draft * 2 > target:
        yield Fault(
            f"the draft reads {human_bytes(draft)} a token, the target {human_bytes(target)}: too close to gain",
            now.profile.where("draft", "model"),
            "take a draft of a quarter of the target or less",
        )
