"""Everything around a server that needs none: ports, the program that is found, the guard."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specbuild.engine import Engines
from specbuild.errors import RepositoryError, ServerError, ToolchainError
from specbuild.plan import Plan
from specbuild.profile import Profile
from specbuild.triton_repo import carrier, guard, server
from specbuild.triton_repo.server import Ports, start
from specbuild.triton_repo.write import render


def _until(condition: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"did not happen in {seconds} s"
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.fixture
def shm() -> Iterator[Path]:
    """A region under a prefix of its own, as a server's stub would make it."""
    region = guard.SHM / f"specbuild_test_{os.getpid()}_region"
    region.write_bytes(b"x")
    yield region
    region.unlink(missing_ok=True)


def _program(folder: Path, *lines: str) -> Path:
    """A server in the place of tritonserver."""
    path = folder / "tritonserver"
    path.write_text("\n".join([f"#!{sys.executable}", "import os, signal, sys, time", *lines]) + "\n")
    path.chmod(0o755)
    return path


def _guarded(tmp_path: Path, program: Path, region: Path, grace: str = "5") -> subprocess.Popen[bytes]:
    """The program under a guard; its pid is written to ``pid``."""
    (tmp_path / "scratch").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-I", guard.__file__, str(region.name), str(tmp_path / "scratch"), grace, str(program)],
        stdin=subprocess.PIPE,
        cwd=tmp_path,
    )
    _until((tmp_path / "pid").exists)
    _until(lambda: (tmp_path / "pid").read_text() != "")
    return process


SLEEPER = ('open("pid", "w").write(str(os.getpid()))', "time.sleep(60)")
STUBBORN = ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", *SLEEPER)


def _pid(tmp_path: Path) -> int:
    return int((tmp_path / "pid").read_text())


@pytest.mark.parametrize("how", ["its caller's end closes", "SIGTERM"])
def test_the_guard_ends_the_server_and_removes_its_leavings(tmp_path: Path, shm: Path, how: str) -> None:
    process = _guarded(tmp_path, _program(tmp_path, *SLEEPER), shm)
    assert process.stdin
    if how == "SIGTERM":
        process.terminate()
    else:
        process.stdin.close()
    assert process.wait(10) == 128 + signal.SIGTERM
    process.stdin.close()
    assert not _alive(_pid(tmp_path))
    assert not shm.exists()
    assert not (tmp_path / "scratch").exists()


def test_a_server_that_does_not_end_is_killed_after_the_grace(tmp_path: Path, shm: Path) -> None:
    process = _guarded(tmp_path, _program(tmp_path, *STUBBORN), shm, grace="0.2")
    assert process.stdin
    process.stdin.close()
    assert process.wait(10) == 128 + signal.SIGKILL
    assert not _alive(_pid(tmp_path))


def test_a_killed_guard_takes_the_server_along(tmp_path: Path, shm: Path) -> None:
    process = _guarded(tmp_path, _program(tmp_path, *STUBBORN), shm)
    assert process.stdin
    process.kill()
    process.wait()
    process.stdin.close()
    _until(lambda: not _alive(_pid(tmp_path)))


def test_the_exit_code_of_a_server_that_ends_by_itself_is_kept(tmp_path: Path, shm: Path) -> None:
    process = _guarded(tmp_path, _program(tmp_path, 'open("pid", "w").write("0")', "sys.exit(3)"), shm)
    assert process.stdin
    assert process.wait(10) == 3
    process.stdin.close()
    assert not shm.exists()


def test_shared_memory_of_dead_owners_is_removed_and_of_living_ones_kept() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, living = (guard.SHM / f"specbuild_{pid}_test_{os.getpid()}" for pid in (ended.pid, os.getpid()))
    dead.write_bytes(b"")
    living.write_bytes(b"")
    try:
        server._remove_leavings()
        assert not dead.exists()
        assert living.exists()
    finally:
        living.unlink()


@pytest.fixture
def repository(profile: Profile, engines: Engines, plan: Plan) -> Path:
    return render(profile, engines, plan)


def test_every_taken_port_is_named(repository: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = Ports(one.getsockname()[1], Ports.free().grpc, two.getsockname()[1])
        with pytest.raises(ServerError) as caught:
            start(repository, ports=ports)
    said = [str(fault) for fault in caught.value.faults]
    assert len(said) == 2
    assert f"http port {ports.http} on 127.0.0.1: Address already in use" in said[0]
    assert f"metrics port {ports.metrics} on 127.0.0.1" in said[1]
    assert "--metrics-port" in said[1]
    assert caught.value.exit_code == 9


def test_one_port_for_two_is_named(repository: Path) -> None:
    free = Ports.free()
    with pytest.raises(ServerError, match=f"grpc port {free.http} is the http port too"):
        start(repository, ports=Ports(free.http, free.http, free.metrics))


def test_an_address_that_is_not_ours_is_named(repository: Path) -> None:
    with pytest.raises(ServerError, match=r"on 203\.0\.113\.1: Cannot assign requested address"):
        start(repository, ports=Ports.free(), host="203.0.113.1")


def test_a_damaged_repository_is_refused_before_a_server_meets_it(repository: Path, tmp_path: Path) -> None:
    (repository / "tiny" / "1" / "model.py").unlink()
    with pytest.raises(RepositoryError, match=r"model\.py: is missing"):
        start(repository, ports=Ports.free(), tritonserver=_program(tmp_path, "time.sleep(60)"))


def test_a_server_that_dies_is_reported_with_the_end_of_its_log(repository: Path, tmp_path: Path) -> None:
    program = _program(
        tmp_path,
        'print("I1 fine")',
        'print("E1130 server.cc] CudaDriverHelper has not been initialized.")',
        "print(\"E1130 model.cc] failed to load 'tiny'\")",
        "sys.exit(1)",
    )
    with pytest.raises(ServerError) as caught:
        start(repository, ports=Ports.free(), tritonserver=program)
    said = str(caught.value)
    assert "did not start (exit 1)" in said
    assert "failed to load 'tiny'" in said
    assert "fine" not in said
    assert "CudaDriverHelper" not in said
    assert str(repository.with_name("repository.log")) in said


def test_a_server_that_never_gets_ready_is_stopped(repository: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = _program(
        tmp_path, f'open("{pid}", "w").write(str(os.getpid()))', 'print("waiting", flush=True)', SLEEPER[1]
    )
    with pytest.raises(ServerError, match=r"tiny not ready after 1 s:\s+waiting"):
        start(repository, ports=Ports.free(), tritonserver=program, timeout_s=1)
    assert not _alive(int(pid.read_text()))


def test_the_search_for_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, on_path = tmp_path / "named", tmp_path / "path"
    for folder in (named, on_path):
        folder.mkdir()
        _program(folder)
    monkeypatch.delenv("TRITONSERVER", raising=False)
    monkeypatch.setattr(carrier, "CONTAINER", tmp_path / "nowhere")
    assert "pytriton" in str(carrier.find(None, tmp_path / "scratch").program)
    monkeypatch.setattr(carrier, "CONTAINER", named / "tritonserver")
    assert carrier.find(None, tmp_path).program == named / "tritonserver"
    monkeypatch.setenv("PATH", str(on_path))
    assert carrier.find(None, tmp_path).program == on_path / "tritonserver"
    monkeypatch.setenv("TRITONSERVER", str(named / "tritonserver"))
    assert carrier.find(None, tmp_path).program == named / "tritonserver"
    assert carrier.find(on_path / "tritonserver", tmp_path).program == on_path / "tritonserver"


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_named_server_that_is_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(ServerError, match="is not a program"):
        carrier.find(tmp_path / name, tmp_path)


def test_no_server_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITONSERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(carrier, "CONTAINER", tmp_path / "nowhere")
    monkeypatch.setattr(carrier.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match=r"specbuild\[serve\]"):
        carrier.find(None, tmp_path)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The wheel's folders without its programs."""
    home = tmp_path / "site" / "pytriton" / "tritonserver"
    stub = home / "python_backend_stubs" / f"{sys.version_info[0]}.{sys.version_info[1]}" / "triton_python_backend_stub"
    for file in (home / "bin" / "tritonserver", home / "backends" / "python" / "libtriton_python.so", stub):
        file.parent.mkdir(parents=True)
        file.write_text("")
    return home.parent


def test_the_wheels_server_is_bound_to_this_interpreter(package: Path, tmp_path: Path) -> None:
    found = carrier.wheel(package, tmp_path / "scratch")
    backend = tmp_path / "scratch" / "backends"
    assert f"--backend-directory={backend}" in found.arguments
    assert sorted(path.name for path in (backend / "python").iterdir()) == [
        "libtriton_python.so",
        "triton_python_backend_stub",
        "triton_python_backend_utils.py",
    ]
    environment = found.full_environment
    assert environment["PATH"].startswith(f"{Path(sys.executable).parent}:")
    first, second = environment["LD_LIBRARY_PATH"].split(":")
    assert list(Path(first).glob("libpython3*.so.1.0"))
    assert second == str(package.parent / "nvidia_pytriton.libs")
    assert not {"PYTHONHOME", "PYTHONPATH"} & set(environment)


def test_numpy_2_and_a_missing_stub_are_both_named(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrier.metadata, "version", lambda name: "2.4.0")
    shutil.rmtree(package / "tritonserver" / "python_backend_stubs")
    with pytest.raises(ToolchainError) as caught:
        carrier.wheel(package, tmp_path / "scratch")
    assert ["'numpy<2'" in str(fault) or "has no stub" in str(fault) for fault in caught.value.faults] == [True, True]


def test_a_python_without_shared_library(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    with pytest.raises(ToolchainError, match=rf"apt install libpython3\.{sys.version_info[1]}"):
        carrier.wheel(package, tmp_path / "scratch")


def test_a_library_of_another_patch_release(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "_version_of", lambda library: "3.11.99")
    with pytest.raises(ToolchainError, match=r"is of Python 3\.11\.99, but .* is running"):
        carrier.wheel(package, tmp_path / "scratch")
