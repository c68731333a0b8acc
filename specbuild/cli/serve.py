"""``specbuild serve``."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specbuild.cli.options import json_option
from specbuild.console import result, result_json, say, step

if TYPE_CHECKING:
    from specbuild.profile import Serving
    from specbuild.triton_repo.server import Server

PORT = click.IntRange(1, 65535)


@click.command("serve")
@click.argument("what", metavar="PROFILE|REPOSITORY", type=click.Path(path_type=Path, exists=True))
@click.option("--http-port", type=PORT, help="[default: the profile's, else 8000]")
@click.option("--grpc-port", type=PORT, help="[default: the profile's, else 8001]")
@click.option("--metrics-port", type=PORT, help="[default: the profile's, else 8002]")
@click.option("--host", help="Address to listen on [default: the profile's, else 127.0.0.1].")
@click.option("--tritonserver", type=click.Path(path_type=Path), help="The server program to start.")
@click.option("--log", type=click.Path(path_type=Path, dir_okay=False), help="[default: REPOSITORY.log]")
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=120, show_default=True,
              help="Seconds until the model must be ready.")  # fmt: skip
@json_option
def command(
    what: Path,
    http_port: int | None,
    grpc_port: int | None,
    metrics_port: int | None,
    host: str | None,
    tritonserver: Path | None,
    log: Path | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Run a Triton server on the repository of PROFILE, or on REPOSITORY, until Ctrl-C.

    The server is the one of --tritonserver, $TRITONSERVER, PATH or /opt/tritonserver, else the one that the
    nvidia-pytriton wheel carries (CPU only). It ends with this command, however that ends. Exit codes: 7 the repository
    is damaged, 4 there is no server to start, 9 a port is taken or the server failed.
    """
    from specbuild.triton_repo.server import Ports, start

    repository, serving = _resolve(what)
    ports = Ports(http_port or serving.http_port, grpc_port or serving.grpc_port, metrics_port or serving.metrics_port)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service manager's stop is a clean one too
    with step(f"starting a Triton server on {repository}"):
        server = start(
            repository,
            host=host or serving.host,
            ports=ports,
            tritonserver=tritonserver,
            log=log,
            timeout_s=timeout_s,
        )
    try:
        _announce(server, as_json=as_json)
        server.wait()
    except KeyboardInterrupt:
        say("  stopping: requests in flight may end")
    finally:
        server.stop()


def _resolve(what: Path) -> tuple[Path, Serving]:
    """The repository, and where it listens."""
    from specbuild.errors import RepositoryError
    from specbuild.profile import Profile, Serving

    if what.is_dir():
        return what, Serving()
    profile = Profile.load(what)
    repository = profile.out / "repository"
    if not repository.is_dir():
        raise RepositoryError("there is no repository yet", where=str(repository), fix=f"run specbuild render {what}")
    return repository, profile.serving


def _announce(server: Server, *, as_json: bool) -> None:
    model = server.models[0]
    url = f"http://{server.http_url}/v2/models/{model}/generate_stream"
    if as_json:
        endpoints = {"http": server.http_url, "grpc": server.grpc_url, "metrics": server.metrics_url}
        result_json({**endpoints, "models": list(server.models), "log": str(server.log)})
        return
    result(
        f"{model} is ready\n"
        f"  gRPC     {server.grpc_url}\n"
        f"  HTTP     {url}\n"
        f"  metrics  {server.metrics_url}\n"
        f"  log      {server.log}\n"
        f'try: curl -N {url} -d \'{{"text_input": "Once", "max_tokens": 32, "stream": true}}\'\n'
        f'  or: specbuild ask --url {server.grpc_url} "Once"\n'
        "Ctrl-C stops it."
    )
