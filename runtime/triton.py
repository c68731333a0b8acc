"""A served pair behind the session protocol, so that what is replayed in process is replayed through Triton too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
import numpy as np
import numpy.typing as npt
from tritonclient.grpc import service_pb2, service_pb2_grpc

from specbuild.clock import now_ns
from specbuild.errors import ServerError
from specbuild.runtime.policy import Situation
from specbuild.runtime.session import Chunk, Finish, Generate, OnChunk

NS_PER_US = 1_000
READY_S = 5
_DATATYPES = {np.dtype(np.int32): "INT32", np.dtype(np.uint64): "UINT64", np.dtype(np.float32): "FP32",
              np.dtype(np.bool_): "BOOL", np.dtype(np.object_): "BYTES"}  # fmt: skip


class TritonSession:
    """A model that ``specbuild serve`` serves, over gRPC; one stream and one thread for each request in flight.

    ``budget`` names a budget of the served plan that decides the draft length; None: each request's own policy does,
    asked once. A chunk's time is when it reached this client. Raises ServerError where the model is not ready.
    """

    graph = "triton"

    def __init__(self, url: str, model: str, budget: str | None = None) -> None:
        self._model = model
        self._budget = budget
        self._channel = grpc.insecure_channel(url, options=[("grpc.max_receive_message_length", -1)])
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._lock = threading.Lock()
        self._calls: dict[_Call, threading.Thread] = {}
        self._closed = False
        if fault := self._fault():
            self._channel.close()
            raise ServerError(fault, where=url)

    def _fault(self) -> str | None:
        try:
            request = service_pb2.ModelReadyRequest(name=self._model)
            ready = self._stub.ModelReady(request, timeout=READY_S).ready
        except grpc.RpcError as error:
            return f"no Triton server answers: {_reason(error)}"
        return None if ready else f"model {self._model!r} is not ready"

    def submit(self, request: Generate, on_chunk: OnChunk) -> _Call:
        """Send a request.

        Raises ServerError after ``close``.
        """
        message = self._message(request)
        with self._lock:
            if self._closed:
                raise ServerError("the session is closed")
            call = _Call(self._stub.ModelStreamInfer(iter([message])), on_chunk)
            thread = threading.Thread(target=self._run, args=(call,), name=f"triton-{request.id}", daemon=True)
            self._calls[call] = thread
            thread.start()
        return call

    def close(self) -> None:
        """Cancel what is in flight and close the connection; the server runs on."""
        with self._lock:
            self._closed = True
            calls = dict(self._calls)
        for call, thread in calls.items():
            call.cancel()
            thread.join()
        self._channel.close()

    def _run(self, call: _Call) -> None:
        call.run()
        with self._lock:
            self._calls.pop(call, None)

    def _message(self, request: Generate) -> Any:
        message = service_pb2.ModelInferRequest(model_name=self._model, id=request.id)
        if request.timeout_ns is not None:
            message.parameters["timeout"].int64_param = max(request.timeout_ns // NS_PER_US, 1)
        for name, array in self._inputs(request):
            message.inputs.add(name=name, datatype=_DATATYPES[array.dtype], shape=array.shape)
            message.raw_input_contents.append(_raw(array))
        return message

    def _inputs(self, request: Generate) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        sampling = request.sampling
        yield "input_ids", np.array(request.token_ids, np.int32)
        yield "max_tokens", np.array([request.max_tokens], np.int32)
        yield "temperature", np.array([sampling.temperature], np.float32)
        yield "top_p", np.array([sampling.top_p], np.float32)
        yield "top_k", np.array([sampling.top_k], np.int32)
        if sampling.seed is not None:
            yield "seed", np.array([sampling.seed], np.uint64)
        yield "ignore_eos", np.array([request.ignore_eos])
        yield "stream", np.array([True])
        yield "return_perf_metrics", np.array([True])
        if self._budget is None:
            draft_len = request.policy.draft_len(Situation(len(request.token_ids), 0, 1))
            yield "draft_len", np.array([draft_len], np.int32)
        else:
            yield "budget", np.array([self._budget.encode()], np.object_)


@dataclass(eq=False)
class _Call:
    """A request in flight."""

    stream: Any
    on_chunk: OnChunk = field(repr=False)
    finished: bool = False

    def cancel(self) -> None:
        """End it; the server notices within some 20 ms.

        An RPC that is cancelled behind its last response leaves the model in use for ever (Triton 2.51): then not.
        """
        if not self.finished:
            self.stream.cancel()

    def run(self) -> None:
        """Deliver chunks until the last one; a broken stream ends with ``error``."""
        try:
            for response in self.stream:  # to its end, behind the last response too: leaving early would cancel it
                t_ns = now_ns()
                if response.error_message:
                    self._deliver(Chunk((), t_ns, finish="error", detail=response.error_message))
                    continue
                for chunk in _chunks(response.infer_response, t_ns):
                    self._deliver(chunk)
            self._deliver(Chunk((), now_ns(), finish="error", detail="the stream ended before the answer"))
        except grpc.RpcError as error:
            cancelled = error.code() == grpc.StatusCode.CANCELLED
            end: Finish = "cancelled" if cancelled else "error"
            self._deliver(Chunk((), now_ns(), finish=end, detail="" if cancelled else _reason(error)))

    def _deliver(self, chunk: Chunk) -> None:
        """Nothing follows a chunk with ``finish``."""
        if not self.finished:
            self.finished = chunk.finish is not None
            self.on_chunk(chunk)


def _chunks(response: Any, t_ns: int) -> Iterator[Chunk]:
    """The rounds of one response; those that left together share its time."""
    raw = dict(zip((output.name for output in response.outputs), response.raw_output_contents, strict=True))
    ids, tokens, drafted, accepted = (
        np.frombuffer(raw[name], np.int32).tolist()
        for name in ("output_ids", "round_tokens", "round_drafted", "round_accepted")
    )
    finish = cast("Finish | None", raw["finish_reason"][4:].decode() or None)
    begin = 0
    for index, count in enumerate(tokens):
        last = index == len(tokens) - 1
        yield Chunk(tuple(ids[begin : begin + count]), t_ns, drafted[index], accepted[index], finish if last else None)
        begin += count


def _raw(array: npt.NDArray[Any]) -> bytes:
    """An array as Triton reads it; text with its length in front."""
    if array.dtype != np.object_:
        return array.tobytes()
    return b"".join(len(text).to_bytes(4, "little") + text for text in array)


def _reason(error: Any) -> str:
    return f"{error.code().name}: {error.details()}"
