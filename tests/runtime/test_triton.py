"""The session over gRPC against a server of this process that misbehaves; the real one is in tests/e2e."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from specbuild.errors import ServerError
from specbuild.runtime.policy import Banded, fixed
from specbuild.runtime.session import Chunk, Generate, Sampling
from specbuild.runtime.triton import TritonSession

Answer = Callable[[Any, grpc.ServicerContext], Iterator[Any]]


def _response(ids: list[int], rounds: list[tuple[int, int, int]], finish: str = "") -> Any:
    """``rounds``: tokens, drafted, accepted of each."""
    response = pb.ModelStreamInferResponse()
    columns = zip(*rounds, strict=True)
    arrays = {"output_ids": ids, **dict(zip(("round_tokens", "round_drafted", "round_accepted"), columns, strict=True))}
    for name, values in arrays.items():
        response.infer_response.outputs.add(name=name)
        response.infer_response.raw_output_contents.append(np.array(values, np.int32).tobytes())
    response.infer_response.outputs.add(name="finish_reason")
    text = finish.encode()
    response.infer_response.raw_output_contents.append(len(text).to_bytes(4, "little") + text)
    return response


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Notes requests and answers them as the test wants."""

    ready = True
    answer: Answer

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        return pb.ModelReadyResponse(ready=self.ready)

    def ModelStreamInfer(self, requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        request = next(requests)
        self.requests.append(request)
        yield from self.answer(request, context)

    def inputs(self) -> dict[str, Any]:
        """The last request's inputs, read by their declared types."""
        kinds = {"INT32": np.int32, "UINT64": np.uint64, "FP32": np.float32, "BOOL": np.bool_}
        request = self.requests[-1]
        found = {}
        for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True):
            if tensor.datatype == "BYTES":
                found[tensor.name] = raw[4:].decode()
                assert int.from_bytes(raw[:4], "little") == len(raw) - 4
            else:
                values = np.frombuffer(raw, kinds[tensor.datatype]).tolist()
                assert list(tensor.shape) == [len(values)]
                found[tensor.name] = values if tensor.name == "input_ids" else values[0]
        return found


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def url(service: Service) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(8))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.fixture
def session(url: str) -> Iterator[TritonSession]:
    made = TritonSession(url, "tiny")
    yield made
    made.close()


def _run(session: TritonSession, **settings: Any) -> list[Chunk]:
    chunks: list[Chunk] = []
    done = threading.Event()

    def on_chunk(chunk: Chunk) -> None:
        chunks.append(chunk)
        if chunk.finish:
            done.set()

    session.submit(
        Generate(**{"id": "r1", "token_ids": (5, 6), "max_tokens": 9, "policy": fixed(3), **settings}), on_chunk
    )
    assert done.wait(10)
    return chunks


def test_responses_become_the_rounds_that_they_hold(session: TritonSession, service: Service) -> None:
    def answer(request: Any, context: Any) -> Iterator[Any]:
        yield _response([1], [(1, 0, 0)])
        yield _response([2, 3, 4, 5], [(3, 3, 2), (1, 3, 0)])
        yield _response([], [(0, 0, 0)], "timeout")

    service.answer = answer
    chunks = _run(session)
    assert [(chunk.token_ids, chunk.drafted, chunk.accepted, chunk.finish) for chunk in chunks] == [
        ((1,), 0, 0, None),
        ((2, 3, 4), 3, 2, None),
        ((5,), 3, 0, None),
        ((), 0, 0, "timeout"),
    ]
    times = [chunk.t_ns for chunk in chunks]
    assert times == sorted(times)
    assert times[1] == times[2]


def _stop(request: Any, context: Any) -> Iterator[Any]:
    yield _response([1], [(1, 0, 0)], "stop")


def test_a_request_reaches_the_server_whole(session: TritonSession, service: Service) -> None:
    service.answer = _stop
    sampling = Sampling(temperature=0.5, top_p=0.25, top_k=7, seed=2**64 - 1)
    _run(session, sampling=sampling, timeout_ns=2_000_000, ignore_eos=True)
    assert service.inputs() == {
        "input_ids": [5, 6],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "seed": 2**64 - 1,
        "ignore_eos": True,
        "stream": True,
        "return_perf_metrics": True,
        "draft_len": 3,
    }
    request = service.requests[-1]
    assert (request.model_name, request.id, request.parameters["timeout"].int64_param) == ("tiny", "r1", 2000)


def test_the_policy_is_asked_for_this_prompt(session: TritonSession, service: Service) -> None:
    service.answer = _stop
    _run(session, policy=Banded((1, 2), (7, 5, 0)))
    assert service.inputs()["draft_len"] == 5


def test_a_budget_takes_the_place_of_the_policy(url: str, service: Service) -> None:
    service.answer = _stop
    session = TritonSession(url, "tiny", budget="chat")
    _run(session)
    session.close()
    assert service.inputs()["budget"] == "chat"
    assert "draft_len" not in service.inputs()


def test_what_the_server_refuses_is_an_error_with_its_reason(session: TritonSession, service: Service) -> None:
    def answer(request: Any, context: Any) -> Iterator[Any]:
        yield pb.ModelStreamInferResponse(error_message="INVALID_ARGUMENT: top_k: -1")

    service.answer = answer
    (chunk,) = _run(session)
    assert (chunk.finish, chunk.detail) == ("error", "INVALID_ARGUMENT: top_k: -1")


def test_a_stream_that_breaks_is_an_error(session: TritonSession, service: Service) -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield _response([1], [(1, 0, 0)])
        context.abort(grpc.StatusCode.UNAVAILABLE, "going down")

    service.answer = answer
    first, last = _run(session)
    assert (first.token_ids, last.finish, last.detail) == ((1,), "error", "UNAVAILABLE: going down")


def test_a_stream_that_ends_early_is_an_error(session: TritonSession, service: Service) -> None:
    service.answer = lambda request, context: iter([_response([1], [(1, 0, 0)])])
    assert _run(session)[-1].detail == "the stream ended before the answer"


def test_a_stream_that_breaks_behind_the_answer_is_none(session: TritonSession, service: Service) -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield _response([1], [(1, 0, 0)], "stop")
        context.abort(grpc.StatusCode.INTERNAL, "late")

    service.answer = answer
    assert [chunk.finish for chunk in _run(session)] == ["stop"]


class Endless:
    """Answers until the client goes."""

    def __init__(self) -> None:
        self.gone = threading.Event()

    def __call__(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(self.gone.set)
        yield _response([1], [(1, 0, 0)])
        self.gone.wait(10)


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_cancel_and_close_end_what_is_in_flight(url: str, service: Service, how: str) -> None:
    service.answer = endless = Endless()
    session = TritonSession(url, "tiny")
    chunks: list[Chunk] = []
    begun, done = threading.Event(), threading.Event()

    def on_chunk(chunk: Chunk) -> None:
        chunks.append(chunk)
        (done if chunk.finish else begun).set()

    handle = session.submit(Generate("r", (5,), 9, fixed(1)), on_chunk)
    assert begun.wait(10)
    if how == "cancel":
        handle.cancel()
    else:
        session.close()
    assert done.wait(10)
    assert endless.gone.wait(10)
    assert [chunk.finish for chunk in chunks] == [None, "cancelled"]
    session.close()


def test_cancel_behind_the_answer_leaves_the_call_alone(session: TritonSession, service: Service) -> None:
    finished, released, cancelled = threading.Event(), threading.Event(), []

    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield _response([1], [(1, 0, 0)], "stop")
        released.wait(10)
        cancelled.append(not context.is_active())

    service.answer = answer
    handle = session.submit(Generate("r", (5,), 9, fixed(1)), lambda chunk: finished.set())
    assert finished.wait(10)
    handle.cancel()
    threading.Timer(0.2, released.set).start()
    session.close()
    assert cancelled == [False]


def test_a_closed_session_takes_no_request(session: TritonSession) -> None:
    session.close()
    with pytest.raises(ServerError, match="the session is closed"):
        session.submit(Generate("r", (5,), 9, fixed(1)), lambda chunk: None)


def test_a_model_that_is_not_ready(url: str, service: Service) -> None:
    service.ready = False
    with pytest.raises(ServerError, match="model 'tiny' is not ready"):
        TritonSession(url, "tiny")


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:9: no Triton server answers: UNAVAILABLE"):
        TritonSession("127.0.0.1:9", "tiny")
