"""The traffic that a plan is tuned on: recorded requests with their arrival times."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator
from typing_extensions import Self

from specbuild.errors import Fault, ProfileError
from specbuild.record import Record


class Message(Record):
    """One message of a chat."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Request(Record):
    """One recorded request: exactly one of ``prompt``, ``messages`` and ``token_ids`` holds its input."""

    id: str
    arrival_s: Annotated[float, Field(ge=0)] = 0.0
    """Seconds after the trace's start."""
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    token_ids: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    max_tokens: Annotated[int, Field(ge=1)] = 64
    """Output limit, tokens."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0: greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    """0: no limit."""
    seed: int | None = None
    session: str | None = None
    """Turns of one conversation share it."""
    tags: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_input(self) -> Self:
        given = [name for name in ("prompt", "messages", "token_ids") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of prompt, messages and token_ids, not {' and '.join(given) or 'none'}")
        if not (self.prompt or self.messages or self.token_ids):
            raise ValueError(f"{given[0]} is empty")
        return self


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival, and the sha256 of what they were read from."""

    requests: tuple[Request, ...]
    digest: str

    def take(self, count: int | None) -> Trace:
        """An evenly spread part of ``count`` requests (all of them when None or fewer)."""
        if count is None or count >= len(self.requests):
            return self
        step = len(self.requests) / count
        return self.of([self.requests[int(index * step)] for index in range(count)])

    def halves(self) -> tuple[Trace, Trace]:
        """Two halves, split by session so that no conversation is in both; alternating, so both see all hours."""
        groups = {request.session or request.id: None for request in self.requests}
        first = {name for index, name in enumerate(groups) if index % 2 == 0}
        inside = [(request.session or request.id) in first for request in self.requests]
        return (
            self.of([r for r, is_first in zip(self.requests, inside, strict=True) if is_first]),
            self.of([r for r, is_first in zip(self.requests, inside, strict=True) if not is_first]),
        )

    @classmethod
    def of(cls, requests: Sequence[Request]) -> Trace:
        """A trace of these requests; the digest is taken of their JSON."""
        lines = [json.dumps(request.model_dump(mode="json", exclude_defaults=True)) for request in requests]
        return cls(tuple(requests), hashlib.sha256("\n".join(lines).encode()).hexdigest())


def load(path: Path) -> Trace:
    """Read a JSONL trace, sorted by arrival.

    Raises ProfileError with every bad line at once (the first 20 shown): file, line, what is wrong.
    """
    try:
        data = path.read_bytes()
        lines = data.decode("utf-8-sig").split("\n")  # not splitlines: JSON text may hold U+2028
    except (OSError, ValueError) as error:
        raise ProfileError(f"cannot read the trace: {error}", where=str(path)) from error
    faults: list[Fault] = []
    requests: list[Request] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            request = _request(line, f"{path}:{number}", faults)
            if request is None:
                continue
            if request.id in seen:
                faults.append(
                    Fault(f"id {request.id!r} is given twice (first on line {seen[request.id]})", f"{path}:{number}")
                )
            seen[request.id] = number
            requests.append(request)
    if not requests and not faults:
        faults.append(Fault("the trace has no request", str(path)))
    if faults:
        more = [Fault(f"and {len(faults) - 20} more bad lines", str(path))] if len(faults) > 20 else []
        raise ProfileError(faults[:20] + more)
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(tuple(requests), hashlib.sha256(data).hexdigest())


def _request(line: str, where: str, faults: list[Fault]) -> Request | None:
    try:
        return Request.model_validate_json(line, strict=True)
    except ValidationError as error:
        for item in error.errors():
            if item["type"] == "json_invalid":
                faults.append(Fault(f"not JSON: {item['ctx']['error'].replace(' at line 1', ' at')}", where))
                continue
            field = ".".join(map(str, item["loc"]))
            faults.append(Fault(f"{field + ': ' if field else ''}{item['msg'].removeprefix('Value error, ')}", where))
    return None
