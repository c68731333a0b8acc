"""``specbuild serve`` with a real server, and the ways it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paper import plan_of

from specbuild.cli import main
from specbuild.engine import Engines
from specbuild.plan import PolicySpec
from specbuild.profile import Profile
from specbuild.triton_repo import render
from specbuild.triton_repo.ask import ask
from specbuild.triton_repo.guard import SHM
from specbuild.triton_repo.server import Ports


@pytest.fixture(scope="module")
def repository(tiny_engines: Engines, tiny_profile: Profile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Speculation off everywhere: one engine, the quickest to start."""
    plan = plan_of(tiny_engines, {"chat": PolicySpec.fixed(0)}).model_copy(update={"numerics": tiny_profile.numerics})
    return render(tiny_profile, tiny_engines, plan, out=tmp_path_factory.mktemp("served") / "repository")


def _until(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"did not happen in {seconds} s"
        time.sleep(0.05)


class Serving:
    """The command in a process of its own."""

    def __init__(self, repository: Path) -> None:
        self.ports = Ports.free()
        arguments = [f"--{name}-port={port}" for name, port in self.ports.named().items()]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "specbuild", "serve", str(repository), *arguments, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.mark = f"specbuild_{self.process.pid}_"

    def announced(self) -> dict[str, Any]:
        assert self.process.stdout
        text = ""
        while not text.endswith("}\n"):
            line = self.process.stdout.readline()
            assert line, self.process.stderr and self.process.stderr.read()
            text += line
        return dict(json.loads(text))

    def leavings(self) -> list[str]:
        """Its processes (server, stubs, guard) and shared memory."""
        found = [region.name for region in SHM.glob(f"{self.mark}*")]
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_text()
            except OSError:
                continue
            if self.mark in command:
                found.append(command.replace("\0", " "))
        return found


@pytest.fixture
def serving(repository: Path) -> Iterator[Serving]:
    one = Serving(repository)
    yield one
    if one.process.poll() is None:
        one.process.terminate()
    one.process.communicate(timeout=30)
    assert one.leavings() == []


def test_it_serves_until_ctrl_c_and_leaves_nothing(serving: Serving, capsys: pytest.CaptureFixture[str]) -> None:
    said = serving.announced()
    assert said["models"] == ["tiny"]
    assert said["grpc"] == f"127.0.0.1:{serving.ports.grpc}"
    (outputs,) = ask(said["grpc"], "tiny", "def", stream=False, max_tokens=4, ignore_eos=True, return_perf_metrics=True)
    assert (len(outputs["output_ids"]), outputs["total_draft_tokens"][0]) == (4, 0)
    assert main(["ask", "def", "--url", said["grpc"], "--max-tokens", "4", "--model", "other"]) == 9
    assert "no model 'other'; the server has tiny" in capsys.readouterr().err
    assert len(serving.leavings()) >= 4
    serving.process.send_signal(signal.SIGINT)
    assert serving.process.wait(20) == 0


def test_a_killed_command_leaves_no_server(serving: Serving) -> None:
    serving.announced()
    serving.process.kill()
    serving.process.wait()
    _until(lambda: serving.leavings() == [])


def test_a_killed_server_is_reported(serving: Serving) -> None:
    serving.announced()
    (server,) = (
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if serving.mark in (command := path.read_text()) and command.split("\0")[0].endswith("bin/tritonserver")
    )
    subprocess.run(["kill", "-9", server], check=True)
    _, said = serving.process.communicate(timeout=20)
    assert serving.process.returncode == 9
    assert "the server ended by itself (exit 137)" in said


def test_ctrl_c_while_it_starts(serving: Serving) -> None:
    _until(lambda: len(serving.leavings()) >= 2)
    serving.process.send_signal(signal.SIGINT)
    assert serving.process.wait(20) == 130


def test_a_port_in_use(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ports = Ports.free()
    with socket.create_server(("127.0.0.1", ports.grpc)):
        arguments = [f"--{name}-port={port}" for name, port in ports.named().items()]
        assert main(["serve", str(repository), *arguments]) == 9
    said = capsys.readouterr().err
    assert f"grpc port {ports.grpc} on 127.0.0.1: Address already in use" in said
    assert "--grpc-port" in said


def test_there_is_no_repository_yet(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(tiny_folder / "profile.yaml")]) == 7
    assert "run specbuild render" in capsys.readouterr().err


def test_a_folder_that_is_no_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(tmp_path)]) == 7
    assert "is not a rendered repository" in capsys.readouterr().err


def test_a_server_that_is_not_there(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [f"--{name}-port={port}" for name, port in Ports.free().named().items()]
    assert main(["serve", str(repository), *arguments, "--tritonserver", str(tmp_path / "none")]) == 9
    assert "is not a program" in capsys.readouterr().err
