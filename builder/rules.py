"""The table of rules of ``specbuild check``: what must hold of a profile and its two models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from specbuild.builder import limit_rules, model_rules, tokenizer_rules
from specbuild.builder.situation import Situation
from specbuild.errors import Fault
from specbuild.pair import Finding, Severity


@dataclass(frozen=True)
class Rule:
    """One rule: a stable id, how bad it is when it speaks, what it checks, and the check itself."""

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


RULES = (
    Rule("precision", "error", "The stack builds the precision that each model asks for.", model_rules.precision),
    Rule("weights", "error", "The stored weights are those that config.json describes.", model_rules.weights),
    Rule(
        "int4-groups",
        "error",
        "A group of 128, 64 or 32 columns divides the width of every int4 weight.",
        model_rules.groups,
    ),
    Rule("exporter", "warning", "Each model can be exported with what is installed.", model_rules.exporter),
    Rule("vocabulary", "error", "Every token has the same id in both models.", tokenizer_rules.vocabulary),
    Rule("added-tokens", "error", "The same tokens are added to both vocabularies.", tokenizer_rules.added),
    Rule("merges", "error", "Both tokenizers merge in the same order.", tokenizer_rules.merges),
    Rule("special-ids", "error", "The bos, eos, pad and unk tokens are the same.", tokenizer_rules.special),
    Rule(
        "tokenizer-pipeline", "error", "Normalizer, pre-tokenizer and decoder are the same.", tokenizer_rules.pipeline
    ),
    Rule(
        "post-processor",
        "warning",
        "Both tokenizers add the same special tokens around a text.",
        tokenizer_rules.post_processor,
    ),
    Rule("chat-template", "warning", "Both models were given the same chat template.", tokenizer_rules.chat_template),
    Rule("eos", "warning", "Both models end a generation with the same tokens.", tokenizer_rules.eos),
    Rule("eos-range", "error", "Every end token is a token of the model.", tokenizer_rules.eos_range),
    Rule("head-rows", "error", "The head has a row for every token of the tokenizer.", model_rules.head_rows),
    Rule("head-padding", "info", "How many rows of the head belong to no token.", model_rules.head_padding),
    Rule("heads", "warning", "Both heads have the same number of rows.", model_rules.heads),
    Rule("draft-size", "warning", "The draft reads at most half the bytes of the target.", model_rules.draft_size),
    Rule(
        "context",
        "error",
        "Both models have positions for max_seq_len and a draft of max_draft_len.",
        limit_rules.context,
    ),
    Rule("kv-request", "error", "One request of max_seq_len fits the KV pool of each model.", limit_rules.kv_request),
    Rule(
        "kv-batch",
        "warning",
        "max_batch_size requests of max_seq_len fit the KV pool of each model.",
        limit_rules.kv_batch,
    ),
    Rule("memory", "error", "Weights and KV pools fit the memory of the machine or its container.", limit_rules.memory),
    Rule("memory-now", "warning", "Weights and KV pools fit the memory that is free now.", limit_rules.memory_now),
    Rule("memory-plan", "info", "What serving the pair takes of memory, at most.", limit_rules.memory_plan),
)
"""Every rule of ``specbuild check``, in the order that findings are shown."""
