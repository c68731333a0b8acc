"""The Triton model repository of a plan: laid out, written, checked, served."""

from __future__ import annotations

from specbuild.triton_repo.write import render

__all__ = ["render"]
