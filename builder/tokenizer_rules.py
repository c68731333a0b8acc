"""Rules of ``specbuild check`` on the tokenizers: a draft's tokens must mean the same to the target."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping

from specbuild.builder.situation import SHOWN, Situation
from specbuild.errors import Fault

_OTHER_TOKENIZER = "take a draft of the target's family: it must have been trained with the same tokenizer"


def vocabulary(now: Situation) -> Iterable[Fault]:
    """Every token has the same id in both models."""
    target, draft = now.pair.target.tokenizer.vocabulary, now.pair.draft.tokenizer.vocabulary
    yield from _unlike_ids(now, "the vocabularies differ", target, draft)


def added(now: Situation) -> Iterable[Fault]:
    """The same tokens are added to both vocabularies."""
    target, draft = now.pair.target.tokenizer, now.pair.draft.tokenizer
    if target.vocabulary == draft.vocabulary:  # else the rule above has named them
        yield from _unlike_ids(now, "the added tokens differ", target.added, draft.added)


def _unlike_ids(now: Situation, what: str, target: Mapping[str, int], draft: Mapping[str, int]) -> Iterable[Fault]:
    if target == draft:
        return
    unlike = [token for token in {**target, **draft} if target.get(token) != draft.get(token)]
    unlike.sort(key=lambda token: min(ids[token] for ids in (target, draft) if token in ids))
    shown = "; ".join(f"{token!r} is {_id(target, token)} and {_id(draft, token)}" for token in unlike[:SHOWN])
    yield Fault(
        f"{what} in {len(unlike)} tokens, of {len(target)} in the target and {len(draft)} in the draft: {shown}",
        now.profile.where("draft", "model"),
        _OTHER_TOKENIZER,
    )


def _id(ids: Mapping[str, int], token: str) -> str:
    return str(ids[token]) if token in ids else "missing"


def merges(now: Situation) -> Iterable[Fault]:
    """Both tokenizers merge in the same order."""
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


def special(now: Situation) -> Iterable[Fault]:
    """The bos, eos, pad and unk tokens are the same."""
    target, draft = now.pair.target.tokenizer.special_ids, now.pair.draft.tokenizer.special_ids
    for kind in target:
        if target[kind] != draft.get(kind):
            yield Fault(
                f"the {kind} token is {target[kind]} in the target and {draft.get(kind)} in the draft",
                now.profile.where("draft", "model"),
                "copy the target's tokenizer files into the draft's folder if the two share a vocabulary",
            )


def pipeline(now: Situation) -> Iterable[Fault]:
    """Normalizer, pre-tokenizer and decoder are the same."""
    yield from _unlike_parts(now, ("normalizer", "pre_tokenizer", "decoder"), _OTHER_TOKENIZER)


def post_processor(now: Situation) -> Iterable[Fault]:
    """Both tokenizers add the same special tokens around a text."""
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


def chat_template(now: Situation) -> Iterable[Fault]:
    """Both models were given the same chat template."""
    target, draft = now.pair.target.tokenizer.chat_template, now.pair.draft.tokenizer.chat_template
    if target != draft:
        which = "only the target has" if draft is None else "only the draft has" if target is None else "they differ in"
        yield Fault(
            f"{which} a chat template: the draft may have been trained on other chats",
            now.profile.where("draft", "model"),
            "nothing to do: chats are written by the target's; expect a lower acceptance",
        )


def eos(now: Situation) -> Iterable[Fault]:
    """Both models end a generation with the same tokens."""
    target, draft = set(now.pair.target.eos_ids), set(now.pair.draft.eos_ids)
    if not target:
        yield Fault("the target names no end token: only the output limit ends a request", str(now.pair.target.folder))
    elif target != draft:
        yield Fault(
            f"the end tokens differ: {sorted(target)} and {sorted(draft)}; the target's count",
            now.profile.where("draft", "model"),
        )


def eos_range(now: Situation) -> Iterable[Fault]:
    """Every end token is a token of the model."""
    for role, _, facts in now.models():
        for token in facts.eos_ids:
            if not 0 <= token < facts.vocab_size:
                what = f"{role}: the end token {token} is not below the vocabulary size {facts.vocab_size}"
                yield Fault(what, str(facts.folder), "correct generation_config.json")
