"""Starts a Triton server on a repository, waits until its models answer, and stops it without leavings."""

from __future__ import annotations

import http.client
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from specbuild.errors import Fault, ServerError
from specbuild.triton_repo import guard
from specbuild.triton_repo.carrier import find
from specbuild.triton_repo.check import check

GRACE_S = 10.0
POLL_S = 0.05
TAIL = 20
SHM_PREFIX = "specbuild_"


@dataclass(frozen=True)
class Ports:
    """Where the server listens."""

    http: int = 8000
    grpc: int = 8001
    metrics: int = 8002

    @classmethod
    def free(cls) -> Ports:
        """Three that nobody listens on now."""
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        ports = cls(*(one.getsockname()[1] for one in sockets))
        for one in sockets:
            one.close()
        return ports

    def named(self) -> dict[str, int]:
        """Name → port."""
        return {"http": self.http, "grpc": self.grpc, "metrics": self.metrics}


@dataclass(frozen=True)
class Server:
    """A running server; ``stop`` it, or let the process that started it end."""

    host: str
    ports: Ports
    models: tuple[str, ...]
    log: Path
    shm_prefix: str
    guard: subprocess.Popen[bytes] = field(repr=False)

    @property
    def grpc_url(self) -> str:
        """``host:port`` for tritonclient.grpc."""
        return f"{self.host}:{self.ports.grpc}"

    @property
    def http_url(self) -> str:
        """``host:port`` for tritonclient.http; ``generate_stream`` is there too."""
        return f"{self.host}:{self.ports.http}"

    @property
    def metrics_url(self) -> str:
        """The Prometheus page."""
        return f"http://{self.host}:{self.ports.metrics}/metrics"

    def wait(self) -> NoReturn:
        """Return never: raises ServerError with the end of the log when the server ends by itself."""
        code = self.guard.wait()
        raise ServerError(f"the server ended by itself (exit {code}):\n{_tail(self.log)}", where=str(self.log))

    def stop(self) -> None:
        """Let it finish what is in flight for a while, then end it; its shared memory is removed."""
        if self.guard.stdin:  # always: it is the pipe whose end the guard waits for
            self.guard.stdin.close()
        self.guard.wait()
        guard.remove_shm(self.shm_prefix)


@contextmanager
def running(repository: Path, **settings: Any) -> Iterator[Server]:
    """A server on ``repository`` for the length of a ``with`` block; settings as in ``start``."""
    server = start(repository, **settings)
    try:
        yield server
    finally:
        server.stop()


def start(
    repository: Path,
    *,
    host: str = "127.0.0.1",
    ports: Ports | None = None,
    tritonserver: Path | None = None,
    log: Path | None = None,
    timeout_s: float = 120.0,
) -> Server:
    """Check the repository, start a server on it and wait until every model is ready.

    ``ports`` default to Triton's own, ``log`` to ``<repository>.log``.
    Raises RepositoryError where the repository is damaged, ToolchainError where there is no server to start,
    ServerError where a port is taken or the server does not become ready in ``timeout_s``.
    """
    models = check(repository).models
    ports = ports or Ports()
    if faults := list(_port_faults(host, ports)):
        raise ServerError(faults)
    _remove_leavings()
    log = log or repository.with_name(f"{repository.name}.log")
    prefix = f"{SHM_PREFIX}{os.getpid()}_{secrets.token_hex(3)}_"
    scratch = Path(tempfile.mkdtemp(prefix="specbuild-triton-"))
    try:
        carrier = find(tritonserver, scratch)
        command = [str(carrier.program), *carrier.arguments, *_arguments(repository, host, ports, prefix)]
        process = _guarded(command, carrier.full_environment, log, prefix, scratch)
    except BaseException:
        shutil.rmtree(scratch)
        raise
    server = Server(host, ports, models, log, prefix, process)
    try:
        _wait_until_ready(server, timeout_s)
    except BaseException:
        server.stop()
        raise
    return server


def _arguments(repository: Path, host: str, ports: Ports, shm_prefix: str) -> Iterator[str]:
    yield f"--model-repository={repository.resolve()}"
    for name, port in ports.named().items():
        yield f"--{name}-port={port}"
        yield f"--{name}-address={host}"
    yield "--disable-auto-complete-config"  # else each model is started twice
    yield "--allow-gpu-metrics=false"
    yield f"--backend-config=python,shm-region-prefix-name={shm_prefix}"
    yield f"--exit-timeout-secs={GRACE_S:.0f}"


def _guarded(
    command: list[str], environment: dict[str, str], log: Path, prefix: str, scratch: Path
) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-I", guard.__file__, prefix, str(scratch), str(GRACE_S)]
    with log.open("wb") as output:
        return subprocess.Popen(
            [*program, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches us, and we stop the server
        )


def _port_faults(host: str, ports: Ports) -> Iterator[Fault]:
    taken: dict[int, str] = {}
    for name, port in ports.named().items():
        if port in taken:
            yield Fault(f"{name} port {port} is the {taken[port]} port too", fix=f"choose another with --{name}-port")
        elif reason := _cannot_listen(host, port):
            yield Fault(
                f"{name} port {port} on {host}: {reason}", fix=f"stop what listens there, or give --{name}-port another"
            )
        taken[port] = name


def _cannot_listen(host: str, port: int) -> str | None:
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _remove_leavings() -> None:
    """Remove shared memory of servers whose starter and guard were both killed."""
    for region in guard.SHM.glob(f"{SHM_PREFIX}*"):
        owner = region.name.removeprefix(SHM_PREFIX).partition("_")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            region.unlink(missing_ok=True)


def _wait_until_ready(server: Server, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    waiting = list(server.models)
    while waiting:
        code = server.guard.poll()
        if code is not None:
            raise ServerError(f"the server did not start (exit {code}):\n{_tail(server.log)}", where=str(server.log))
        if time.monotonic() > end:
            raise ServerError(
                f"{', '.join(waiting)} not ready after {timeout_s:.0f} s:\n{_tail(server.log)}",
                where=str(server.log),
                fix="give --timeout more seconds if the engines are large",
            )
        waiting = [model for model in waiting if not _ready(server, model)]
        if waiting:
            time.sleep(POLL_S)


def _ready(server: Server, model: str) -> bool:
    connection = http.client.HTTPConnection(server.host, server.ports.http, timeout=1)
    try:
        connection.request("GET", f"/v2/models/{model}/ready")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


def _tail(log: Path) -> str:
    """The end of the log, errors first where it has some."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if line.startswith(("E", "error")) and "CudaDriverHelper" not in line]
    return "\n".join(f"    {line[:300]}" for line in (errors or lines)[-TAIL:])
