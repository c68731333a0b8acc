"""The served model with a session and a Triton that fail on demand; the real ones are in tests/e2e."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import fake_triton
import pytest

from specbuild.errors import ServerError
from specbuild.runtime.policy import fixed
from specbuild.runtime.session import Chunk, Generate, OnChunk
from specbuild.triton_repo.models.speculate.settings import Settings

NAME = "specbuild.triton_repo.models.speculate.model"
ARGUMENTS = {"model_name": "tiny", "model_version": "1", "model_instance_name": "tiny_0"}


class ByteTokenizer:
    """Tokens are bytes; id 13 has no text."""

    has_chat_template = False

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Any, skip_special_tokens: bool = True) -> str:
        if 13 in token_ids:
            raise RuntimeError("no text for 13")
        return bytes(token_ids).decode()


class Session:
    """Keeps what is submitted; the test plays the engine."""

    graph = "orchestrated"

    def __init__(self) -> None:
        self.requests: list[tuple[Generate, OnChunk]] = []
        self.cancelled: list[str] = []
        self.closed = False

    def submit(self, request: Generate, on_chunk: OnChunk) -> Any:
        if self.closed:
            raise ServerError("the session is closed")
        self.requests.append((request, on_chunk))
        return self

    def cancel(self) -> None:
        self.cancelled.append("r")

    def close(self) -> None:
        self.closed = True
        for _, on_chunk in self.requests:
            on_chunk(Chunk((), 0, finish="cancelled"))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The model's module, over the fake Triton."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake_triton)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    loaded = importlib.import_module(NAME)
    settings = Settings("tiny", "d" * 64, "orchestrated", "exact", 4, 100, 200, 4, 1, 256, (0,))
    monkeypatch.setattr(loaded.Settings, "read", classmethod(lambda cls, folder: settings))
    monkeypatch.setattr(loaded, "read_policies", lambda folder: {"chat": fixed(4)})
    monkeypatch.setattr(loaded, "Tokenizer", lambda folder: ByteTokenizer())
    monkeypatch.setattr(loaded, "open_session", lambda spec: Session())
    yield loaded
    fake_triton.Logger.errors.clear()
    monkeypatch.delitem(sys.modules, NAME)


@pytest.fixture
def model(module: ModuleType) -> Iterator[Any]:
    made = module.TritonPythonModel()
    made.initialize(ARGUMENTS)
    yield made
    made.finalize()
    assert not [thread for thread in made.threads if thread.is_alive()]
    assert made.live == set()
    assert fake_triton.Metric.page == {}


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end, "did not happen in 5 s"
        time.sleep(0.005)


def _ask(model: Any, **inputs: Any) -> tuple[fake_triton.Sender, OnChunk]:
    request = fake_triton.Request(text_input=b"hi", stream=True, **inputs)
    model.execute([request])
    return request.sender, model.session.requests[-1][1]


def test_chunks_leave_as_deltas_and_counts_reach_the_page(model: Any) -> None:
    sender, on_chunk = _ask(model)
    on_chunk(Chunk((72,), 1))
    _until(lambda: len(sender.sent) == 1)
    on_chunk(Chunk((105, 33), 2, drafted=4, accepted=1, finish="stop"))
    _until(lambda: len(sender.sent) == 2)
    assert [(outputs["text_output"][0], final) for outputs, final in sender.sent] == [(b"H", False), (b"i!", True)]
    _until(lambda: sum(fake_triton.Metric.page.values()) == 1 + 4 + 1 + 1)


def test_a_bad_request_is_answered_and_not_submitted(model: Any) -> None:
    request = fake_triton.Request(text_input=b"hi", budget=b"none")
    model.execute([request])
    ((error, final),) = request.sender.sent
    assert (error.code, final) == ("INVALID_ARG", True)
    assert "'none' is not in the plan, which has chat" in str(error)
    assert model.session.requests == []


def test_a_cancelled_request_is_cancelled_once_and_answered(model: Any) -> None:
    sender, on_chunk = _ask(model)
    sender.cancelled = True
    _until(lambda: model.session.cancelled == ["r"])
    time.sleep(0.1)
    assert model.session.cancelled == ["r"]
    on_chunk(Chunk((), 1, finish="cancelled"))
    _until(lambda: len(sender.sent) == 1)
    assert sender.sent[0][0].code == "CANCELLED"


def test_no_request_is_asked_for_its_cancel_once_its_answer_leaves(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WATCH_S", 0.0002)
    model = module.TritonPythonModel()
    model.initialize(ARGUMENTS)
    senders = []
    for _ in range(50):
        sender, on_chunk = _ask(model)
        on_chunk(Chunk((65,), 1))
        on_chunk(Chunk((66,), 2, finish="length"))
        senders.append(sender)
        _until(lambda sender=sender: sender.final)
    model.finalize()
    assert not [sender for sender in senders if sender.crashed]


def test_an_error_of_the_session_reaches_the_client(model: Any) -> None:
    sender, on_chunk = _ask(model)
    on_chunk(Chunk((), 1, finish="error", detail="the KV cache is full"))
    _until(lambda: len(sender.sent) == 1)
    assert (sender.sent[0][0].code, str(sender.sent[0][0])) == ("INTERNAL", "INTERNAL: the KV cache is full")


def test_text_that_cannot_be_made_ends_that_request_only(model: Any) -> None:
    sender, on_chunk = _ask(model)
    other, on_other = _ask(model)
    on_chunk(Chunk((13,), 1))
    _until(lambda: len(sender.sent) == 1)
    assert "no text for 13" in str(sender.sent[0][0])
    assert model.session.cancelled == ["r"]
    on_chunk(Chunk((), 2, finish="cancelled"))
    on_other(Chunk((65,), 3, finish="length"))
    _until(lambda: len(other.sent) == 1)
    assert len(sender.sent) == 1


def test_a_response_that_cannot_leave_does_not_stop_the_others(model: Any) -> None:
    sender, on_chunk = _ask(model)
    other, on_other = _ask(model)
    sender.broken = True
    on_chunk(Chunk((65,), 1))
    on_other(Chunk((65,), 2, finish="length"))
    _until(lambda: len(other.sent) == 1)
    assert model.session.cancelled == ["r"]
    assert "shared memory" in fake_triton.Logger.errors[0]


def test_a_closed_session_is_unavailable(model: Any) -> None:
    model.session.close()
    request = fake_triton.Request(text_input=b"hi")
    model.execute([request])
    assert request.sender.sent[0][0].code == "UNAVAILABLE"


def test_finalize_answers_what_is_in_flight(module: ModuleType) -> None:
    made = module.TritonPythonModel()
    made.initialize(ARGUMENTS)
    sender, _ = _ask(made)
    made.finalize()
    assert [final for _, final in sender.sent] == [True]


def test_numpy_2_is_refused(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.np, "__version__", "2.1.0")
    with pytest.raises(fake_triton.TritonModelException, match="'numpy<2'"):
        module.TritonPythonModel().initialize(ARGUMENTS)
