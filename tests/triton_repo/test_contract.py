from __future__ import annotations

from pathlib import Path

from specbuild.triton_repo.models.speculate.contract import INPUTS, OUTPUTS, Tensor

PAGE = (Path(__file__).parent.parent.parent / "docs" / "serving.md").read_text()


def _row(tensor: Tensor) -> str:
    size = "" if tensor.dims == (1,) else " list"
    return f"| `{tensor.name}` | {tensor.data_type}{size} | {tensor.meaning} |"


def test_the_page_lists_every_tensor() -> None:
    for tensors in (INPUTS, OUTPUTS):
        assert "\n".join(map(_row, tensors)) in PAGE


def test_names_are_unique() -> None:
    names = [tensor.name for tensor in (*INPUTS, *OUTPUTS)]
    assert len(names) == len(set(names))
