"""Where a Triton server comes from: one that is installed, or the one that the nvidia-pytriton wheel carries."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from specbuild.errors import Fault, ServerError, ToolchainError

CONTAINER = Path("/opt/tritonserver/bin/tritonserver")
INSTALL = "pip install 'specbuild[serve]', or give --tritonserver PATH or TRITONSERVER"
_READ_VERSION = (
    "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); lib.Py_GetVersion.restype = ctypes.c_char_p;"
    "print(lib.Py_GetVersion().decode().split()[0])"
)


@dataclass(frozen=True)
class Carrier:
    """A tritonserver program and what it needs to start."""

    program: Path
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to ours; an empty value takes a variable away."""

    @property
    def full_environment(self) -> dict[str, str]:
        """What the server process sees."""
        return {name: value for name, value in {**os.environ, **self.environment}.items() if value}


def find(given: Path | None, scratch: Path) -> Carrier:
    """The first of: ``given``, $TRITONSERVER, PATH, a Triton container's place, the nvidia-pytriton wheel.

    ``scratch`` is a folder for the wheel's backend folder. Raises ServerError where ``given`` is not there,
    ToolchainError where there is none at all or the wheel's cannot run in this Python.
    """
    named = given or (Path(os.environ["TRITONSERVER"]) if os.environ.get("TRITONSERVER") else None)
    if named:
        if not os.access(named, os.X_OK) or named.is_dir():
            raise ServerError("is not a program", where=str(named), fix="name the tritonserver program itself")
        return Carrier(named)
    if on_path := shutil.which("tritonserver"):
        return Carrier(Path(on_path))
    if CONTAINER.is_file():
        return Carrier(CONTAINER)
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainError("no Triton server on this machine", fix=INSTALL)
    return wheel(Path(spec.submodule_search_locations[0]), scratch)


def wheel(package: Path, scratch: Path) -> Carrier:
    """The server in the nvidia-pytriton wheel, its Python backend bound to the interpreter that runs this."""
    home = package / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = home / "python_backend_stubs" / version / "triton_python_backend_stub"
    if faults := [*_numpy_faults(), *_stub_faults(stub, version)]:
        raise ToolchainError(faults)
    libpython = _libpython()
    backend = scratch / "backends" / "python"
    backend.mkdir(parents=True, exist_ok=True)
    ours = home / "backends" / "python"
    for file in (ours / "libtriton_python.so", ours / "triton_python_backend_utils.py", stub):
        (backend / file.name).symlink_to(file)
    return Carrier(
        home / "bin" / "tritonserver",
        (f"--backend-directory={backend.parent}", f"--cache-directory={home / 'caches'}"),
        {
            "LD_LIBRARY_PATH": f"{libpython.parent}:{package.parent / 'nvidia_pytriton.libs'}",
            # the stub looks python3 up on PATH and takes its packages from there
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
            "PYTHONHOME": "",
            "PYTHONPATH": "",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )


def _numpy_faults() -> list[Fault]:
    installed = metadata.version("numpy")
    if int(installed.split(".")[0]) < 2:
        return []
    return [Fault(f"numpy {installed}: the server's Python stub corrupts its arrays", fix="pip install 'numpy<2'")]


def _stub_faults(stub: Path, version: str) -> list[Fault]:
    if stub.is_file():
        return []
    return [Fault(f"nvidia-pytriton has no stub for Python {version}", str(stub), "use Python 3.10, 3.11 or 3.12")]


def _libpython() -> Path:
    """The shared library of the running interpreter, which the stub embeds; its patch release must be the same."""
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    library = Path(sysconfig.get_config_var("LIBDIR"))
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    places = [library / name, library / multiarch / name, Path(sys.base_prefix) / "lib" / name]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ToolchainError(
            f"this Python has no shared library {name}, which the Triton stub loads",
            where=sys.executable,
            fix=f"apt install lib{name[3:].removesuffix('.so.1.0')}, or use a Python built with --enable-shared",
        )
    ours = ".".join(map(str, sys.version_info[:3]))
    if (theirs := _version_of(found)) != ours:
        raise ToolchainError(f"is of Python {theirs}, but {ours} is running", where=str(found))
    return found


def _version_of(library: Path) -> str:
    """The release of a libpython, asked in a process of its own."""
    command = [sys.executable, "-c", _READ_VERSION, str(library)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
