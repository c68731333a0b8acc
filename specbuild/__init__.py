"""Compile a draft/target pair, tune its draft length on your traffic, serve it with Triton.

``Profile``, ``compile``, ``tune`` and ``render`` do what the commands of the same names do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Profile", "SpecbuildError", "__version__", "bench", "check", "compile", "render", "tune"]

if TYPE_CHECKING:
    from specbuild.builder import check, compile
    from specbuild.errors import SpecbuildError
    from specbuild.profile import Profile
    from specbuild.runtime import bench, tune
    from specbuild.triton_repo import render

_HOMES = {
    "Profile": "specbuild.profile",
    "SpecbuildError": "specbuild.errors",
    "check": "specbuild.builder",
    "compile": "specbuild.builder",
    "bench": "specbuild.runtime",
    "tune": "specbuild.runtime",
    "render": "specbuild.triton_repo",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
