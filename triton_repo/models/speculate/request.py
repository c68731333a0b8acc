"""Checks a request's tensors and turns them into what a session takes.

Triton checks types and shapes, and only counts the required inputs; everything else is checked here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from specbuild.runtime.policy import Policy, fixed
from specbuild.runtime.session import Generate, Sampling
from specbuild.runtime.tokenizer import Encoder
from specbuild.triton_repo.models.speculate.contract import DTYPES
from specbuild.triton_repo.models.speculate.settings import Settings

DEFAULT_MAX_TOKENS = 256
PROMPTS = ("text_input", "input_ids", "messages")
ROLES = ("system", "user", "assistant", "tool")

Inputs = Mapping[str, npt.NDArray[Any]]


class InvalidRequestError(Exception):
    """The client must change the request; it is answered with INVALID_ARGUMENT."""


@dataclass(frozen=True)
class CheckedRequest:
    """What the session generates, and how the client wants to hear of it."""

    generate: Generate
    stream: bool
    perf_metrics: bool


def parse(id_: str, inputs: Inputs, timeout_ns: int | None, settings: Settings, policies: Mapping[str, Policy],
          encoder: Encoder) -> CheckedRequest:  # fmt: skip
    """Check ``inputs`` (given tensors by name).

    Raises InvalidRequestError with the name of the input, what was given and what is allowed.
    """
    if _scalar(inputs, "exclude_input_in_output", True) is False:
        raise InvalidRequestError("exclude_input_in_output: the prompt is never repeated; send true or leave it out")
    token_ids = _prompt(inputs, settings, encoder)
    return CheckedRequest(
        generate=Generate(
            id=id_,
            token_ids=token_ids,
            max_tokens=_max_tokens(inputs, len(token_ids), settings),
            policy=_policy(inputs, settings, policies),
            sampling=_sampling(inputs),
            timeout_ns=timeout_ns,
            ignore_eos=_scalar(inputs, "ignore_eos", False),
        ),
        stream=_scalar(inputs, "stream", False),
        perf_metrics=_scalar(inputs, "return_perf_metrics", False),
    )


def _scalar(inputs: Inputs, name: str, default: Any) -> Any:
    array = inputs.get(name)
    if array is None:
        return default
    if array.size != 1:
        raise InvalidRequestError(f"{name}: one value is needed, {array.size} were given")
    value = array.reshape(-1)[0]
    if DTYPES[name] != "STRING":
        return value.item()
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{name}: not UTF-8 (byte {error.start})") from None


def _number(inputs: Inputs, name: str, default: float, low: float, high: float, allowed: str) -> Any:
    value = _scalar(inputs, name, default)
    if not (math.isfinite(value) and low <= value <= high):
        raise InvalidRequestError(f"{name}: {value} is not {allowed}")
    return value


def _either(inputs: Inputs, name: str, alias: str) -> Any:
    """The value of an input that has two names; None where neither is given."""
    first, second = _scalar(inputs, name, None), _scalar(inputs, alias, None)
    if first is not None and second is not None and first != second:
        raise InvalidRequestError(f"{name} ({first}) and {alias} ({second}) are two names of one input and differ")
    return second if first is None else first


def _prompt(inputs: Inputs, settings: Settings, encoder: Encoder) -> tuple[int, ...]:
    given = [name for name in PROMPTS if name in inputs]
    if len(given) != 1:
        raise InvalidRequestError(f"exactly one of {', '.join(PROMPTS)} is needed; given: {', '.join(given) or 'none'}")
    name = given[0]
    token_ids = _token_ids(name, inputs, settings, encoder)
    if not token_ids:
        raise InvalidRequestError(f"{name}: the prompt is empty")
    limit = min(settings.max_input_len, settings.max_seq_len - 1)
    if len(token_ids) > limit:
        raise InvalidRequestError(f"{name}: the prompt has {len(token_ids)} tokens, at most {limit} are allowed")
    return tuple(token_ids)


def _token_ids(name: str, inputs: Inputs, settings: Settings, encoder: Encoder) -> list[int]:
    if name == "text_input":
        return encoder.encode(_scalar(inputs, name, ""))
    if name == "messages":
        chat = _chat(_scalar(inputs, name, ""))
        if not encoder.has_chat_template:
            raise InvalidRequestError("messages: the model has no chat template; send text_input")
        try:
            text = encoder.apply_chat_template(chat)
        except RuntimeError as error:  # templates refuse what they were not made for, such as two user turns in a row
            raise InvalidRequestError(f"messages: the model's chat template refuses them: {error}") from None
        return encoder.encode(text, add_special_tokens=False)
    ids = np.asarray(inputs[name]).reshape(-1)
    wrong = ids[(ids < 0) | (ids >= settings.vocab_size)]
    if wrong.size:
        raise InvalidRequestError(f"input_ids: {wrong[0]} is not a token id (0 to {settings.vocab_size - 1})")
    return [int(token) for token in ids]


def _chat(text: str) -> list[dict[str, str]]:
    try:
        messages = json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"messages: not JSON: {error}") from None
    if not isinstance(messages, list) or not messages:
        raise InvalidRequestError("messages: a JSON list of messages with role and content is needed")
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise InvalidRequestError(f"messages[{number}]: a message has exactly the keys role and content")
        if message["role"] not in ROLES:
            raise InvalidRequestError(f"messages[{number}].role: {message['role']!r} is not one of {', '.join(ROLES)}")
        if not isinstance(message["content"], str):
            raise InvalidRequestError(f"messages[{number}].content: not a text")
    return messages


def _max_tokens(inputs: Inputs, prompt_len: int, settings: Settings) -> int:
    room = settings.max_seq_len - prompt_len
    allowed = f"1 to {room} (max_seq_len {settings.max_seq_len} less {prompt_len} prompt tokens)"
    return int(_number(inputs, "max_tokens", min(DEFAULT_MAX_TOKENS, room), 1, room, allowed))


def _sampling(inputs: Inputs) -> Sampling:
    top_p = _number(inputs, "top_p", 1.0, 0.0, 1.0, "in (0, 1]")
    if top_p == 0:
        raise InvalidRequestError("top_p: 0 is not in (0, 1]")
    return Sampling(
        temperature=_number(inputs, "temperature", 0.0, 0.0, 100.0, "0 to 100"),
        top_p=top_p,
        top_k=_number(inputs, "top_k", 0, 0, 2**31 - 1, "0 or more"),
        seed=_either(inputs, "seed", "random_seed"),
    )


def _policy(inputs: Inputs, settings: Settings, policies: Mapping[str, Policy]) -> Policy:
    budget = _scalar(inputs, "budget", next(iter(policies)))
    if budget not in policies:
        raise InvalidRequestError(f"budget: {budget!r} is not in the plan, which has {', '.join(policies)}")
    draft_len = _either(inputs, "draft_len", "num_draft_tokens")
    if draft_len is None:
        return policies[budget]
    if not 0 <= draft_len <= settings.max_draft_len:
        why = "" if settings.max_draft_len else "; the plan says off for every budget, so no draft is loaded"
        raise InvalidRequestError(f"draft_len: {draft_len} is not 0 to {settings.max_draft_len}{why}")
    return fixed(int(draft_len))
