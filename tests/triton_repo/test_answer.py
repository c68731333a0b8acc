from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specbuild.runtime.policy import OFF
from specbuild.runtime.session import Chunk, Generate
from specbuild.triton_repo.models.speculate.answer import Answer, Outputs
from specbuild.triton_repo.models.speculate.contract import OUTPUTS
from specbuild.triton_repo.models.speculate.request import CheckedRequest

ROUNDS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted), min_size=1, max_size=8)


class Held:
    """Text that comes out one token late, as a half character does."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, token_ids: Sequence[int]) -> str:
        text = self._held + "".join(chr(token) for token in token_ids)
        self._held = text[-1:]
        return text[:-1]

    def flush(self) -> str:
        text, self._held = self._held, ""
        return text


def _answer(*, stream: bool, perf: bool = False) -> Answer:
    generate = Generate("r", (1, 2, 3), 99, OFF)
    return Answer(CheckedRequest(generate, stream, perf), Held(), arrived_ns=1_000_000)


def _chunks(rounds: list[list[int]]) -> list[Chunk]:
    """A chunk for each (accepted, drafted); round i at (i + 2) ms, its tokens following on."""
    chunks: list[Chunk] = []
    token = 65
    for index, (accepted, drafted) in enumerate(rounds):
        ids = tuple(range(token, token + accepted + 1))
        token += len(ids)
        finish = "length" if index == len(rounds) - 1 else None
        chunks.append(Chunk(ids, (index + 2) * 1_000_000, drafted, accepted, finish))
    return chunks


def _text(outputs: Outputs) -> str:
    text: bytes = outputs["text_output"][0]
    return text.decode()


@given(ROUNDS, st.data())
def test_deltas_join_to_the_whole_whatever_leaves_together(rounds: list[list[int]], data: st.DataObject) -> None:
    chunks = _chunks(rounds)
    whole = _answer(stream=False).reply(chunks)
    assert whole is not None
    answer, replies, begin = _answer(stream=True, perf=True), [], 0
    while begin < len(chunks):
        count = data.draw(st.integers(1, len(chunks) - begin))
        reply = answer.reply(chunks[begin : begin + count])
        assert reply is not None
        replies.append(reply)
        begin += count
    assert "".join(map(_text, replies)) == _text(whole)
    assert np.concatenate([reply["output_ids"] for reply in replies]).tolist() == whole["output_ids"].tolist()
    assert [reply["finish_reason"][0] for reply in replies] == [b""] * (len(replies) - 1) + [b"length"]
    for name, values in {
        "round_tokens": [accepted + 1 for accepted, _ in rounds],
        "round_accepted": [accepted for accepted, _ in rounds],
        "round_drafted": [drafted for _, drafted in rounds],
    }.items():
        assert np.concatenate([reply[name] for reply in replies]).tolist() == values


def test_nothing_is_sent_before_the_end_without_stream() -> None:
    answer = _answer(stream=False)
    first, second = _chunks([[0, 0], [2, 4]])
    assert answer.reply([first]) is None
    reply = answer.reply([second])
    assert reply is not None
    assert _text(reply) == "ABCD"
    assert set(reply) == {"text_output", "output_ids", "finish_reason"}


def test_the_totals_are_in_the_last_response_only() -> None:
    answer = _answer(stream=True, perf=True)
    *first, last = _chunks([[0, 0], [2, 4], [0, 3]])
    for chunk in first:
        reply = answer.reply([chunk])
        assert reply is not None
        assert "rounds" not in reply
    reply = answer.reply([last])
    assert reply is not None
    values = {name: array[0].item() for name, array in reply.items() if array.dtype != object and len(array) == 1}
    expected = {
        "total_draft_tokens": 7,
        "total_accepted_draft_tokens": 2,
        "rounds": 2,
        "input_tokens": 3,
        "output_tokens": 5,
        "ttft_ms": 1.0,
        "e2e_ms": 3.0,
    }
    assert values | expected == values
    assert values["acceptance_rate"] == np.float32(2 / 7)


def test_an_answer_without_tokens_has_figures_too() -> None:
    reply = _answer(stream=True, perf=True).reply([Chunk((), 3_000_000, finish="timeout")])
    assert reply is not None
    assert reply["finish_reason"][0] == b"timeout"
    assert (reply["acceptance_rate"][0], reply["output_tokens"][0], reply["ttft_ms"][0]) == (0, 0, 2)


def test_outputs_are_the_declared_ones() -> None:
    reply = _answer(stream=True, perf=True).reply(_chunks([[1, 2]]))
    assert reply is not None
    kinds = {"STRING": np.object_, "INT32": np.int32, "FP32": np.float32}
    assert {name: array.dtype for name, array in reply.items()} == {
        tensor.name: np.dtype(kinds[tensor.data_type]) for tensor in OUTPUTS
    }
