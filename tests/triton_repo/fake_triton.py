"""What ``triton_python_backend_utils`` is to a model, without a server: it notes what the model sends."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class TritonModelException(Exception):  # noqa: N818 - Triton's name
    pass


class TritonError(Exception):
    INVALID_ARG = "INVALID_ARG"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    CANCELLED = "CANCELLED"

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Tensor:
    name: str
    array: Any

    def as_numpy(self) -> Any:
        return self.array


@dataclass
class InferenceResponse:
    tensors: list[Tensor] = field(default_factory=list)
    error: TritonError | None = None


@dataclass
class Sender:
    """Notes (outputs or error, final); fails while ``broken``.

    The real one crashes the server when it is asked for a cancel while, or after, its final response leaves.
    """

    sent: list[tuple[Any, bool]] = field(default_factory=list)
    cancelled: bool = False
    broken: bool = False
    final: bool = False
    crashed: bool = False

    def send(self, response: InferenceResponse, flags: int = 0) -> None:
        if self.broken:
            raise TritonModelException("Failed to increase the shared memory pool size")
        self.crashed |= self.final
        self.final = flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL
        time.sleep(0.001)
        outputs = {tensor.name: tensor.array for tensor in response.tensors}
        self.sent.append((response.error or outputs, self.final))

    def is_cancelled(self) -> bool:
        self.crashed |= self.final
        time.sleep(0.0005)
        self.crashed |= self.final
        return self.cancelled


class Request:
    def __init__(self, **inputs: Any) -> None:
        self.inputs = {name: Tensor(name, np.array([value])) for name, value in inputs.items()}
        self.sender = Sender()

    def get_response_sender(self) -> Sender:
        return self.sender

    def request_id(self) -> str:
        return "r"

    def timeout(self) -> int:
        return 0


def get_input_tensor_by_name(request: Request, name: str) -> Tensor | None:
    return request.inputs.get(name)


class Logger:
    errors: list[str] = []  # noqa: RUF012 - cleared by the tests' fixture

    @classmethod
    def log_error(cls, text: str) -> None:
        cls.errors.append(text)


class Metric:
    page: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}  # noqa: RUF012 - cleared by the tests' fixture

    def __init__(self, family: str, labels: dict[str, str]) -> None:
        self._key = (family, tuple(sorted(labels.items())))
        assert self._key not in self.page, "two metrics share their labels"
        self.page[self._key] = 0

    def increment(self, by: float) -> None:
        self.page[self._key] += by

    def __del__(self) -> None:
        del self.page[self._key]


class MetricFamily:
    COUNTER = "counter"

    def __init__(self, name: str, description: str, kind: str) -> None:
        assert kind == self.COUNTER
        self._name = name

    def Metric(self, labels: dict[str, str]) -> Metric:  # noqa: N802 - Triton's name
        return Metric(self._name, labels)
