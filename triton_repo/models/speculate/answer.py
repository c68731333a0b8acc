"""From the chunks of a session to the tensors of responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from specbuild.runtime.session import Chunk
from specbuild.triton_repo.models.speculate.request import CheckedRequest

Outputs = dict[str, npt.NDArray[Any]]

NS_PER_MS = 1e6


class TextStream(Protocol):
    """Token ids in, text out as soon as it is whole."""

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that these ids complete."""

    def flush(self) -> str:
        """What is left at the end."""


class Answer:
    """The responses of one request: deltas, one for each ``reply``, or one at the end where it does not stream."""

    def __init__(self, request: CheckedRequest, text: TextStream, arrived_ns: int) -> None:
        self.request = request
        self._text = text
        self._arrived_ns = arrived_ns
        self._first_ns = 0
        self._output_tokens = 0
        self._rounds = 0
        self._drafted = 0
        self._accepted = 0
        self._unsent: list[Chunk] = []

    def reply(self, chunks: Sequence[Chunk]) -> Outputs | None:
        """The outputs of the response that these chunks give; None where nothing is to be sent yet."""
        for chunk in chunks:
            self._count(chunk)
        self._unsent += chunks
        finish = self._unsent[-1].finish
        if not (self.request.stream or finish):
            return None
        unsent, self._unsent = self._unsent, []
        ids = [token for chunk in unsent for token in chunk.token_ids]
        text = self._text.push(ids) + (self._text.flush() if finish else "")
        outputs: Outputs = {
            "text_output": np.array([text.encode()], dtype=np.object_),
            "output_ids": np.array(ids, dtype=np.int32),
            "finish_reason": np.array([(finish or "").encode()], dtype=np.object_),
        }
        if self.request.perf_metrics:
            outputs.update(_rounds(unsent))
            if finish:
                outputs.update(self._totals(unsent[-1].t_ns))
        return outputs

    def _count(self, chunk: Chunk) -> None:
        if chunk.token_ids and not self._output_tokens:
            self._first_ns = chunk.t_ns
        self._output_tokens += len(chunk.token_ids)
        self._rounds += chunk.drafted > 0
        self._drafted += chunk.drafted
        self._accepted += chunk.accepted

    def _totals(self, last_ns: int) -> Outputs:
        first_ns = self._first_ns or last_ns
        integers = {
            "total_draft_tokens": self._drafted,
            "total_accepted_draft_tokens": self._accepted,
            "rounds": self._rounds,
            "input_tokens": len(self.request.generate.token_ids),
            "output_tokens": self._output_tokens,
        }
        reals = {
            "acceptance_rate": self._accepted / max(self._drafted, 1),
            "ttft_ms": (first_ns - self._arrived_ns) / NS_PER_MS,
            "e2e_ms": (last_ns - self._arrived_ns) / NS_PER_MS,
        }
        return {name: np.array([value], dtype=np.int32) for name, value in integers.items()} | {
            name: np.array([value], dtype=np.float32) for name, value in reals.items()
        }


def _rounds(chunks: Sequence[Chunk]) -> Outputs:
    columns = {
        "round_tokens": [len(chunk.token_ids) for chunk in chunks],
        "round_drafted": [chunk.drafted for chunk in chunks],
        "round_accepted": [chunk.accepted for chunk in chunks],
    }
    return {name: np.array(values, dtype=np.int32) for name, values in columns.items()}
