from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbuild.runtime.policy import OFF, fixed
from specbuild.triton_repo.models.speculate.contract import INPUTS
from specbuild.triton_repo.models.speculate.request import CheckedRequest, InvalidRequestError, parse
from specbuild.triton_repo.models.speculate.settings import Settings

SETTINGS = Settings("tiny", "d" * 64, "orchestrated", "exact", 4, 12, 16, 6, 1, 256, (0,))
POLICIES = {"chat": fixed(4), "batch": OFF}
DTYPES = {"STRING": np.object_, "INT32": np.int32, "FP32": np.float32, "UINT64": np.uint64, "BOOL": np.bool_}
KINDS = {tensor.name: DTYPES[tensor.data_type] for tensor in INPUTS}


class Bytes:
    """A tokenizer whose tokens are bytes; its template marks roles and refuses a tool's turn."""

    def __init__(self, template: bool = True) -> None:
        self.has_chat_template = template

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return ([1] if add_special_tokens and text else []) + list(text.encode())

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]]) -> str:
        if messages[0]["role"] == "tool":
            raise RuntimeError("a tool cannot begin")
        return "".join(f"{message['role'][0]}:{message['content']}" for message in messages)


def _tensors(**values: Any) -> dict[str, Any]:
    """Inputs as Triton hands them over: arrays of the declared type, text as bytes."""
    return {
        name: np.array(
            [one.encode() if isinstance(one, str) else one for one in (value if isinstance(value, list) else [value])],
            KINDS[name],
        )
        for name, value in values.items()
    }


def _parse(settings: Settings = SETTINGS, encoder: Bytes | None = None, **values: Any) -> CheckedRequest:
    return parse("r1", _tensors(**values), None, settings, POLICIES, encoder or Bytes())


def test_a_bare_prompt_is_greedy_under_the_first_budget() -> None:
    checked = _parse(text_input="abc")
    generate = checked.generate
    assert generate.token_ids == (1, 97, 98, 99)
    assert (generate.id, generate.max_tokens, generate.policy) == ("r1", 12, fixed(4))
    assert (generate.sampling.greedy, generate.ignore_eos, generate.timeout_ns) == (True, False, None)
    assert not checked.stream
    assert not checked.perf_metrics


def test_everything_that_can_be_asked_for() -> None:
    checked = _parse(
        input_ids=[5, 6],
        max_tokens=3,
        temperature=0.5,
        top_p=0.25,
        top_k=7,
        seed=2**64 - 1,
        ignore_eos=True,
        stream=True,
        return_perf_metrics=True,
        exclude_input_in_output=True,
        budget="batch",
    )
    sampling = checked.generate.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.25, 7, 2**64 - 1)
    assert (checked.generate.token_ids, checked.generate.max_tokens, checked.generate.policy) == ((5, 6), 3, OFF)
    assert checked.generate.ignore_eos
    assert checked.stream
    assert checked.perf_metrics


def test_a_chat_goes_through_the_template_without_special_tokens() -> None:
    checked = _parse(messages=json.dumps([{"role": "user", "content": "hé"}]))
    assert bytes(checked.generate.token_ids).decode() == "u:hé"


@pytest.mark.parametrize(("name", "alias"), [("draft_len", "num_draft_tokens"), ("seed", "random_seed")])
def test_two_names_of_one_input(name: str, alias: str) -> None:
    assert _parse(text_input="a", **{name: 3}) == _parse(text_input="a", **{alias: 3})
    assert _parse(text_input="a", **{name: 3, alias: 3}) == _parse(text_input="a", **{name: 3})
    with pytest.raises(InvalidRequestError, match=rf"{name} \(3\) and {alias} \(4\)"):
        _parse(text_input="a", **{name: 3, alias: 4})


def test_draft_len_goes_before_the_budget() -> None:
    assert _parse(text_input="a", budget="batch", draft_len=6).generate.policy == fixed(6)
    assert _parse(text_input="a", draft_len=0).generate.policy == OFF


NONE = "exactly one of text_input, input_ids, messages is needed; given: none"
USER = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, NONE),
        ({"max_tokens": 4}, NONE),
        ({"text_input": "a", "input_ids": [1]}, "given: text_input, input_ids"),
        ({"text_input": ""}, "text_input: the prompt is empty"),
        ({"text_input": b"\xff\xfe"}, "text_input: not UTF-8 (byte 0)"),
        ({"text_input": ["a", "b"]}, "text_input: one value is needed, 2 were given"),
        ({"text_input": "a" * 12}, "the prompt has 13 tokens, at most 12 are allowed"),
        ({"input_ids": []}, "input_ids: the prompt is empty"),
        ({"input_ids": [3, 256]}, "input_ids: 256 is not a token id (0 to 255)"),
        ({"input_ids": [-1]}, "input_ids: -1 is not a token id"),
        ({"messages": "{"}, "messages: not JSON"),
        ({"messages": "[]"}, "messages: a JSON list of messages"),
        ({"messages": '{"role": "user"}'}, "messages: a JSON list of messages"),
        ({"messages": "[3]"}, "messages[0]: a message has exactly the keys role and content"),
        ({"messages": json.dumps([USER, {**USER, "name": "x"}])}, "messages[1]: a message has exactly"),
        ({"messages": json.dumps([{**USER, "role": "root"}])}, "messages[0].role: 'root' is not one of system, user"),
        ({"messages": json.dumps([{**USER, "content": 3}])}, "messages[0].content: not a text"),
        ({"messages": json.dumps([{**USER, "role": "tool"}])}, "the model's chat template refuses them"),
        ({"text_input": "a", "max_tokens": 0}, "max_tokens: 0 is not 1 to 14 (max_seq_len 16 less 2 prompt tokens)"),
        ({"text_input": "a", "max_tokens": 15}, "max_tokens: 15 is not 1 to 14"),
        ({"text_input": "a", "max_tokens": -(2**31)}, "max_tokens: -2147483648 is not 1"),
        ({"text_input": "a", "temperature": float("nan")}, "temperature: nan is not 0 to 100"),
        ({"text_input": "a", "temperature": float("inf")}, "temperature: inf is not"),
        ({"text_input": "a", "temperature": -0.5}, "temperature: -0.5 is not"),
        ({"text_input": "a", "top_p": 0.0}, "top_p: 0 is not in (0, 1]"),
        ({"text_input": "a", "top_p": 1.5}, "top_p: 1.5 is not in (0, 1]"),
        ({"text_input": "a", "top_p": float("nan")}, "top_p: nan is not in (0, 1]"),
        ({"text_input": "a", "top_k": -1}, "top_k: -1 is not 0 or more"),
        ({"text_input": "a", "budget": "fast"}, "budget: 'fast' is not in the plan, which has chat, batch"),
        ({"text_input": "a", "budget": ""}, "budget: '' is not in the plan"),
        ({"text_input": "a", "draft_len": 7}, "draft_len: 7 is not 0 to 6"),
        ({"text_input": "a", "draft_len": -1}, "draft_len: -1 is not 0 to 6"),
        (
            {"text_input": "a", "exclude_input_in_output": False},
            "exclude_input_in_output: the prompt is never repeated",
        ),
    ],
)
def test_what_is_refused_and_why(values: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        _parse(**values)
    assert why in str(caught.value)


def test_a_model_without_chat_template() -> None:
    with pytest.raises(InvalidRequestError, match="no chat template; send text_input"):
        _parse(encoder=Bytes(template=False), messages=json.dumps([USER]))


def test_no_draft_is_loaded_where_every_budget_is_off() -> None:
    off = Settings("tiny", "d" * 64, "fused", "exact", 4, 12, 16, 0, 1, 256, (0,))
    assert _parse(off, text_input="a", draft_len=0).generate.policy == OFF
    with pytest.raises(InvalidRequestError, match="the plan says off for every budget, so no draft is loaded"):
        _parse(off, text_input="a", draft_len=1)


ANYTHING = {
    "STRING": st.binary(max_size=20) | st.sampled_from([b"chat", b"batch", b'[{"role":"user","content":"x"}]']),
    "INT32": st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 20),
    "UINT64": st.integers(0, 2**64 - 1),
    "FP32": st.floats(width=32) | st.floats(0, 1, width=32),
    "BOOL": st.booleans(),
}
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        tensor.name: st.lists(ANYTHING[tensor.data_type], min_size=max(0, tensor.dims[0]), max_size=8)
        if tensor.name == "input_ids"
        else st.lists(ANYTHING[tensor.data_type], min_size=1, max_size=2)
        for tensor in INPUTS
    },
)


@given(REQUESTS)
def test_any_request_is_within_the_limits_or_refused(values: dict[str, list[Any]]) -> None:
    try:
        generate = _parse(**values).generate
    except InvalidRequestError:
        return
    assert 1 <= len(generate.token_ids) <= SETTINGS.max_input_len
    assert all(0 <= token < SETTINGS.vocab_size for token in generate.token_ids)
    assert 1 <= generate.max_tokens <= SETTINGS.max_seq_len - len(generate.token_ids)
    assert 0 <= generate.sampling.temperature <= 100
    assert 0 < generate.sampling.top_p <= 1
