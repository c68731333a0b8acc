"""The libraries that a build depends on, and their versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

from specbuild.errors import ToolchainError

_ENGINE = ("openvino", "openvino-tokenizers", "transformers")
_EXPORT = ("optimum", "optimum-intel", "torch")
LIBRARIES = (*_ENGINE, "nncf", *_EXPORT)

INSTALL_EXPORT = (
    "install a CPU build of torch, then pip install --no-deps optimum==2.3.0 optimum-intel==2.2.0 (without --no-deps "
    "they bring torchvision and a CUDA build of torch); in a checkout, make export does it"
)


@dataclass(frozen=True)
class Toolchain:
    """Installed libraries → version."""

    versions: Mapping[str, str]

    def version(self, library: str) -> str:
        """The version of a library. Raises ToolchainError that says how to install it."""
        if library in self.versions:
            return self.versions[library]
        fix = INSTALL_EXPORT if library in _EXPORT else "pip install 'specbuild[openvino]'"
        raise ToolchainError(f"{library} is not installed", fix=fix)

    @property
    def exports(self) -> bool:
        """optimum-intel and torch are there."""
        return all(library in self.versions for library in _EXPORT)


def read() -> Toolchain:
    """What is installed, from package metadata; no library is imported."""
    return Toolchain({name: version for name in LIBRARIES if (version := _version(name))})


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
