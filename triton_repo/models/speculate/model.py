"""The Triton model: takes requests, submits them to the session, sends what the session verified.

Three threads beside the session's own: Triton's calls ``execute``; ``_send`` turns chunks into responses, so that the
session waits for none but a request's first; ``_watch`` notices cancelled requests and publishes counters.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

VERSION_FOLDER = Path(__file__).resolve().parent
if (VERSION_FOLDER / "specbuild").is_dir():
    sys.path.insert(0, str(VERSION_FOLDER))  # the package copied beside this file goes before an installed one

import triton_python_backend_utils as pb_utils  # noqa: E402

from specbuild.clock import now_ns  # noqa: E402
from specbuild.errors import ServerError  # noqa: E402
from specbuild.runtime.open import open_session  # noqa: E402
from specbuild.runtime.session import Chunk, Handle  # noqa: E402
from specbuild.runtime.tokenizer import Detokenizer, Tokenizer  # noqa: E402
from specbuild.triton_repo.models.speculate.answer import Answer, Outputs  # noqa: E402
from specbuild.triton_repo.models.speculate.contract import INPUTS  # noqa: E402
from specbuild.triton_repo.models.speculate.counters import Counters  # noqa: E402
from specbuild.triton_repo.models.speculate.request import InvalidRequestError, parse  # noqa: E402
from specbuild.triton_repo.models.speculate.settings import TARGET, Settings, read_policies  # noqa: E402

WATCH_S = 0.02
NS_PER_US = 1_000
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


@dataclass(eq=False)
class Stream:
    """A request in flight: Triton's end, the session's end, and the answer between them.

    Asking Triton whether a request is cancelled while, or after, its final response leaves crashes the server (the
    response factory is gone by then): one lock keeps the two apart.
    """

    sender: Any
    answer: Answer
    band: str
    handle: Handle | None = None
    begun: bool = False
    """The first chunk is there."""
    cancelled: bool = False
    closed: bool = False
    """The final response is out."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def send(self, response: Any, *, final: bool) -> None:
        """Send a response; nothing follows the final one."""
        with self.lock:
            if not self.closed:
                self.sender.send(response, flags=FINAL if final else 0)
                self.closed = final

    def notice_cancel(self) -> None:
        """Cancel the request where its client gave it up."""
        if self.handle is None or self.cancelled:
            return
        with self.lock:
            self.cancelled = not self.closed and self.sender.is_cancelled()
        if self.cancelled:
            self.handle.cancel()


class TritonPythonModel:
    """One instance, one session; requests of all clients share it."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the engines. ``args`` are Triton's: names, version, config."""
        if int(np.__version__.split(".")[0]) >= 2:
            raise pb_utils.TritonModelException(
                f"numpy {np.__version__}: this server's Python stub corrupts arrays of numpy 2; install 'numpy<2'"
            )
        self.settings = Settings.read(VERSION_FOLDER)
        self.policies = read_policies(VERSION_FOLDER)
        self.tokenizer = Tokenizer(VERSION_FOLDER / TARGET)
        self.session = open_session(self.settings.session(VERSION_FOLDER))
        self.counters = Counters(pb_utils, self._labels(args), self.settings.band_labels, self.settings.max_draft_len)
        self.live: set[Stream] = set()
        self.chunks: SimpleQueue[tuple[Stream, Chunk] | None] = SimpleQueue()
        self.closing = threading.Event()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._watch)]
        for thread in self.threads:
            thread.start()

    def execute(self, requests: list[Any]) -> None:
        """Take requests in; their answers follow from ``_send``."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._take(request, sender)
            except InvalidRequestError as error:
                sender.send(_refusal("INVALID_ARGUMENT", str(error)), flags=FINAL)
            except ServerError as error:
                sender.send(_refusal("UNAVAILABLE", str(error)), flags=FINAL)

    def finalize(self) -> None:
        """End what is in flight, free the engines, take the counters off /metrics."""
        self.session.close()
        self.closing.set()
        self.chunks.put(None)
        for thread in self.threads:
            thread.join()
        self.counters.close()

    def _labels(self, args: dict[str, str]) -> dict[str, str]:
        return {
            "pair": self.settings.pair,
            "model": args["model_name"],
            "version": args["model_version"],
            "instance": args["model_instance_name"],
            "load": secrets.token_hex(4),
        }

    def _take(self, request: Any, sender: Any) -> None:
        arrived_ns = now_ns()
        tensors = {tensor.name: pb_utils.get_input_tensor_by_name(request, tensor.name) for tensor in INPUTS}
        inputs = {name: tensor.as_numpy() for name, tensor in tensors.items() if tensor is not None}
        timeout_ns = request.timeout() * NS_PER_US or None
        checked = parse(request.request_id(), inputs, timeout_ns, self.settings, self.policies, self.tokenizer)
        answer = Answer(checked, Detokenizer(self.tokenizer), arrived_ns)
        stream = Stream(sender, answer, self.settings.prompt_band(len(checked.generate.token_ids)))
        self.live.add(stream)
        try:
            stream.handle = self.session.submit(checked.generate, lambda chunk: self._on_chunk(stream, chunk))
        except ServerError:
            self.live.discard(stream)
            raise

    def _on_chunk(self, stream: Stream, chunk: Chunk) -> None:
        """The first response leaves from here: the next round begins at once and would keep every core from it."""
        if stream.begun:
            self.chunks.put((stream, chunk))
        else:
            stream.begun = True
            self._reply(stream, [chunk])

    def _send(self) -> None:
        """Send responses until ``finalize``; chunks that queue up meanwhile leave in one response a request."""
        running = True
        while running:
            items = [self.chunks.get()]
            while not self.chunks.empty():
                items.append(self.chunks.get())
            waiting: dict[Stream, list[Chunk]] = {}
            for item in items:
                if item is None:
                    running = False
                else:
                    waiting.setdefault(item[0], []).append(item[1])
            for stream, chunks in waiting.items():
                if stream in self.live:
                    self._reply(stream, chunks)

    def _reply(self, stream: Stream, chunks: list[Chunk]) -> None:
        self.counters.count(stream.band, chunks)
        last = chunks[-1]
        try:
            if last.finish == "error":
                stream.send(_refusal("INTERNAL", last.detail), final=True)
            elif last.finish == "cancelled":
                stream.send(_refusal("CANCELLED", "the request was cancelled"), final=True)
            elif outputs := stream.answer.reply(chunks):
                stream.send(_response(outputs), final=last.finish is not None)
        except (RuntimeError, pb_utils.TritonModelException) as error:  # the tokenizer; shared memory that ran out
            self._abandon(stream, f"a response could not be made: {error}")
        if last.finish:
            self.live.discard(stream)

    def _abandon(self, stream: Stream, why: str) -> None:
        pb_utils.Logger.log_error(why)
        self.live.discard(stream)
        if stream.handle:
            stream.handle.cancel()
        with contextlib.suppress(pb_utils.TritonModelException):  # its client then runs into its own time-out
            stream.send(_refusal("INTERNAL", why), final=True)

    def _watch(self) -> None:
        """Cancel what clients gave up and publish counters, until ``finalize``."""
        while not self.closing.wait(WATCH_S):
            for stream in list(self.live):
                stream.notice_cancel()
            self.counters.publish()


def _response(outputs: Outputs) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])


def _refusal(code: str, why: str) -> Any:
    """An error response. The code is in its text too: a gRPC stream carries nothing else."""
    status = getattr(pb_utils.TritonError, "INVALID_ARG" if code == "INVALID_ARGUMENT" else code)
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{code}: {why}", status))
