from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbuild import trace
from specbuild.errors import ProfileError
from specbuild.trace import Message, Request, Trace


def write(tmp_path: Path, *lines: dict[str, Any] | str) -> Path:
    path = tmp_path / "t.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), "utf-8")
    return path


def faults(path: Path) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        trace.load(path)
    return [f"{(fault.where or '').rsplit('/', 1)[-1]}: {fault.what}" for fault in caught.value.faults]


def requests(count: int, **common: Any) -> Trace:
    return Trace.of([Request(id=f"r{n}", arrival_s=float(n), prompt="hello", **common) for n in range(count)])


def test_three_kinds_of_input_sorted_by_arrival(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"id": "b", "arrival_s": 2, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "seed": 3},
        "",
        {"id": "a", "arrival_s": 0.5, "prompt": "hi\u2028there"},
        {"id": "c", "arrival_s": 2, "token_ids": [1, 2], "temperature": 0.7, "tags": {"kind": "code"}},
    )
    loaded = trace.load(path)
    assert [request.id for request in loaded.requests] == ["a", "b", "c"]
    assert loaded.requests[1].messages == (Message(role="user", content="hi"),)
    assert loaded.requests[0].max_tokens == 64
    assert loaded.digest == trace.load(path).digest


def test_a_line_ends_at_a_newline_and_nowhere_else(tmp_path: Path) -> None:
    text = "one\u2028two\u0085three"
    path = write(tmp_path, json.dumps({"id": "a", "prompt": text}, ensure_ascii=False))
    assert trace.load(path).requests[0].prompt == text


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "a", "prompt": "x"}\r\n{"id": "b", "prompt": "x"}\r\n')
    assert len(trace.load(path).requests) == 2


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", "not JSON: EOF while parsing an object at column 1"),
        ("nonsense", "not JSON: expected ident at column 2"),
        ("[1]", "Input should be an object"),
        ({"prompt": "x"}, "id: Field required"),
        ({"id": "a"}, "exactly one of prompt, messages and token_ids, not none"),
        ({"id": "a", "prompt": "x", "token_ids": [1]},
         "exactly one of prompt, messages and token_ids, not prompt and token_ids"),
        ({"id": "a", "prompt": ""}, "prompt is empty"),
        ({"id": "a", "messages": []}, "messages is empty"),
        ({"id": "a", "token_ids": []}, "token_ids is empty"),
        ({"id": "a", "token_ids": [-1]}, "token_ids.0: Input should be greater than or equal to 0"),
        ({"id": "a", "prompt": "x", "max_tokens": "64"}, "max_tokens: Input should be a valid integer"),
        ({"id": "a", "prompt": "x", "max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
        ({"id": "a", "prompt": "x", "arrival_s": -1}, "arrival_s: Input should be greater than or equal to 0"),
        ({"id": "a", "prompt": "x", "arrival_s": float("nan")}, "arrival_s: Input should be a finite number"),
        ({"id": "a", "prompt": "x", "top_p": 0}, "top_p: Input should be greater than 0"),
        ({"id": "a", "prompt": "x", "temprature": 1}, "temprature: Extra inputs are not permitted"),
        ({"id": "a", "messages": [{"role": "me", "content": "x"}]},
         "messages.0.role: Input should be 'system', 'user', 'assistant' or 'tool'"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, line: dict[str, Any] | str, fault: str) -> None:
    path = write(tmp_path, {"id": "ok", "prompt": "x"}, line)
    assert faults(path) == [f"t.jsonl:2: {fault}"]


def test_a_line_nested_too_deep(tmp_path: Path) -> None:
    assert "not JSON: recursion limit" in faults(write(tmp_path, "[" * 100_000))[0]


def test_all_bad_lines_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, {"id": "a", "prompt": "x"}, "{", {"id": "a", "prompt": "x"}, {"id": 3, "top_p": 2})
    assert faults(path) == [
        "t.jsonl:2: not JSON: EOF while parsing an object at column 1",
        "t.jsonl:3: id 'a' is given twice (first on line 1)",
        "t.jsonl:4: id: Input should be a valid string",
        "t.jsonl:4: top_p: Input should be less than or equal to 1",
    ]


def test_of_very_many_bad_lines_the_first_are_shown(tmp_path: Path) -> None:
    found = faults(write(tmp_path, *["{"] * 50))
    assert len(found) == 21
    assert found[-1] == "t.jsonl: and 30 more bad lines"


def test_a_trace_that_is_no_trace(tmp_path: Path) -> None:
    assert faults(write(tmp_path, "", "")) == ["t.jsonl: the trace has no request"]
    assert "cannot read" in faults(tmp_path / "missing.jsonl")[0]
    (tmp_path / "t.bin").write_bytes(b"\xff\xfe")
    assert "cannot read" in faults(tmp_path / "t.bin")[0]


@given(st.integers(1, 60), st.integers(1, 80))
def test_a_part_is_spread_evenly_and_in_order(size: int, count: int) -> None:
    whole = requests(size)
    part = whole.take(count)
    taken = [int(request.id[1:]) for request in part.requests]
    assert len(taken) == len(set(taken)) == min(size, count)
    assert taken == sorted(taken)
    gaps = [after - before for before, after in pairwise(taken)]
    assert not gaps or max(gaps) - min(gaps) <= 1
    assert (part.digest == whole.digest) == (count >= size)


def test_taking_nothing_less_keeps_the_trace_itself() -> None:
    whole = requests(5)
    assert whole.take(None) is whole
    assert whole.take(5) is whole


@given(st.lists(st.sampled_from(["s1", "s2", "s3", None]), min_size=2, max_size=40))
def test_halves_share_no_conversation_and_lose_no_request(sessions: list[str | None]) -> None:
    whole = Trace.of([Request(id=f"r{n}", prompt="x", session=session) for n, session in enumerate(sessions)])
    first, second = whole.halves()
    assert sorted(r.id for r in (*first.requests, *second.requests)) == sorted(r.id for r in whole.requests)
    assert not {r.session for r in first.requests if r.session} & {r.session for r in second.requests if r.session}


def test_halves_are_of_equal_size_without_sessions() -> None:
    first, second = requests(9).halves()
    assert [r.id for r in first.requests] == ["r0", "r2", "r4", "r6", "r8"]
    assert [r.id for r in second.requests] == ["r1", "r3", "r5", "r7"]


def test_the_digest_is_of_the_requests() -> None:
    assert requests(3).digest == requests(3).digest
    assert len({requests(3).digest, requests(4).digest, requests(3, max_tokens=5).digest}) == 3
