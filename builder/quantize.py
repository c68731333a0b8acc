"""Weight compression of an OpenVINO model by NNCF."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from specbuild.errors import BuildError

if TYPE_CHECKING:
    import openvino as ov


def compress(
    model: ov.Model,
    precision: Literal["int8", "int4"],
    *,
    group_size: int | None = None,
    samples: Sequence[Sequence[int]] | None = None,
) -> ov.Model:
    """The model with int8 weights (asymmetric, a scale a row) or int4 ones (symmetric, a scale a group).

    With ``samples`` (token ids) int4 is data-aware: AWQ and scale estimation. Tables and heads stay int8 in int4.
    Raises BuildError where NNCF refuses.
    """
    with _quiet_nncf() as nncf:
        try:
            if precision == "int8":
                return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
            return nncf.compress_weights(
                model,
                mode=nncf.CompressWeightsMode.INT4_SYM,
                ratio=1.0,
                group_size=group_size,
                **(_data_aware(nncf, samples) if samples else {}),
            )
        except (
            nncf.InvalidGroupSizeError,
            nncf.ValidationError,
            nncf.InternalError,
            nncf.UnsupportedModelError,
            RuntimeError,
        ) as error:
            raise BuildError(
                f"NNCF could not compress the weights: {error}", fix="use precision int8 or fp16"
            ) from error


def _data_aware(nncf: Any, samples: Sequence[Sequence[int]]) -> dict[str, Any]:
    dataset = nncf.Dataset([_inputs(ids) for ids in samples])
    return {"dataset": dataset, "subset_size": len(samples), "awq": True, "scale_estimation": True}


def _inputs(ids: Sequence[int]) -> dict[str, Any]:
    """One sample as the inputs of the stateful model, batch 1."""
    tokens = np.array([ids], np.int64)
    return {
        "input_ids": tokens,
        "attention_mask": np.ones_like(tokens),
        "position_ids": np.arange(tokens.shape[1], dtype=np.int64)[None],
        "beam_idx": np.zeros(1, np.int32),
    }


@contextlib.contextmanager
def _quiet_nncf() -> Iterator[Any]:
    """NNCF without its usage reports over the network; its bars go to stderr, and only to a terminal."""
    os.environ.setdefault("NNCF_CI", "1")
    import nncf

    nncf.set_log_level(40)  # logging.ERROR
    with contextlib.redirect_stdout(sys.stderr if sys.stderr.isatty() else io.StringIO()):
        yield nncf
