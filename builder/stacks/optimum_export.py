"""OpenVINO graphs of any architecture that optimum-intel knows, exported by its own program in a process of its own."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from openvino import Type

from specbuild.builder.stacks.constants import WeightDtype, matrix
from specbuild.console import say
from specbuild.errors import BuildError

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # everything it needs lies in the model folder
    "CI": "true",  # its libraries report no usage from CI
    "TOKENIZERS_PARALLELISM": "false",
}
_SMALLEST = 1 << 10
"""Elements of a constant that counts as a weight matrix; rotary tables are smaller and must keep their precision."""
_BETWEEN = ("Transpose", "Reshape", "Convert", "Unsqueeze", "Squeeze")


def export(source: Path, scratch: Path, dtype: WeightDtype) -> ov.Model:
    """The model in ``source`` as a stateful OpenVINO graph, its weight matrices as ``dtype`` constants.

    ``scratch`` is an empty place for the float32 export; it is gone afterwards. Exported as float32 on purpose:
    optimum-intel's 16-bit export rounds the rotary frequencies too, which bends long contexts.
    Raises BuildError with what optimum-intel said last.
    """
    try:
        _run(source, scratch)
        model = ov.Core().read_model(scratch / "openvino_model.xml", config={"ENABLE_MMAP": "NO"})
    except RuntimeError as error:
        raise BuildError(f"optimum-intel's export cannot be read: {error}", where=str(source)) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if dtype != "stored":
        _narrow(model, dtype)
    info = model.get_rt_info()
    if "runtime_options" in info:
        del info["runtime_options"]  # the runtime sets precisions by the profile's numerics, not by the exporter
    return model


def _run(source: Path, out: Path) -> None:
    command = [sys.executable, "-m", "optimum.commands.optimum_cli", "export", "openvino", "--model", str(source)]
    command += ["--task", "text-generation-with-past", "--library", "transformers", "--weight-format", "fp32"]
    command += ["--disable-convert-tokenizer", str(out)]
    say(f"    $ {shlex.join(command)}")
    done = subprocess.run(
        command, env=os.environ | _ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        last = "\n    ".join(done.stdout.strip().splitlines()[-8:])
        raise BuildError(
            f"optimum-intel could not export the model (exit code {done.returncode}):\n    {last}", where=str(source)
        )


def _narrow(model: ov.Model, dtype: WeightDtype) -> None:
    """Replace every float32 weight matrix by a ``dtype`` constant, in place."""
    for node in model.get_ordered_ops():
        if _is_matrix(node):
            narrow = matrix(node.get_friendly_name(), node.get_data(dtype=np.float32), "F32", dtype)
            for use in node.output(0).get_target_inputs():
                use.replace_source_output(narrow.output(0))


def _is_matrix(node: Any) -> bool:
    if node.get_type_name() != "Constant" or node.get_element_type() != Type.f32:
        return False
    shape = list(node.get_output_shape(0))
    return len(shape) >= 2 and math.prod(shape) >= _SMALLEST and _feeds(node, ("MatMul", "Gather"))


def _feeds(node: Any, kinds: tuple[str, ...]) -> bool:
    """One of a node's users is of these kinds, seen through what only rearranges."""
    users = [use.get_node() for use in node.output(0).get_target_inputs()]
    return any(
        user.get_type_name() in kinds or (user.get_type_name() in _BETWEEN and _feeds(user, kinds)) for user in users
    )
