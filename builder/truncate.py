"""A draft cut out of its target: some of the layers, everything else as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specbuild.builder import modelfolder
from specbuild.builder.modelfolder import FloatArray, WeightDtype
from specbuild.errors import PairError, ProfileError

_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")


def truncate(model: Path, out: Path, *, keep_layers: tuple[int, ...]) -> Path:
    """Write a folder with only these layers of ``model``, in this order, and the same tokenizer; returns ``out``.

    Weights stay bf16 where they are, and are fp16 otherwise.
    Raises ProfileError where a layer does not exist or none is kept, PairError where the layers are not named as
    Llama's are, BuildError where ``out`` is in use or the disk refuses.
    """
    config = modelfolder.read_json(model / modelfolder.CONFIG)
    layers = int(config.get("num_hidden_layers", 0))
    if not keep_layers or not set(keep_layers) <= set(range(layers)):
        raise ProfileError(f"cannot keep layers {keep_layers} of {layers}", where=str(model))
    tensors = modelfolder.read_tensors(model)
    if not any(_LAYER.fullmatch(name) for name in tensors):
        raise PairError("no tensor is named model.layers.<n>.*", where=str(model))
    dtype: WeightDtype = "bfloat16" if config.get("dtype", config.get("torch_dtype")) == "bfloat16" else "float16"
    changed: dict[str, Any] = {"num_hidden_layers": len(keep_layers), "torch_dtype": dtype}
    if "layer_types" in config:
        changed["layer_types"] = [config["layer_types"][index] for index in keep_layers]
    with modelfolder.new_folder(out) as folder:
        config.pop("dtype", None)
        modelfolder.write_json(folder / modelfolder.CONFIG, {**config, **changed})
        modelfolder.copy_tokenizer(model, folder)
        modelfolder.write_tensors(folder / modelfolder.WEIGHTS, _kept(tensors, keep_layers), dtype)
    return out


def _kept(tensors: dict[str, FloatArray], keep_layers: tuple[int, ...]) -> Iterator[tuple[str, FloatArray]]:
    for name, tensor in tensors.items():
        layer = _LAYER.fullmatch(name)
        if layer is None:
            yield name, tensor
            continue
        for place, index in enumerate(keep_layers):
            if index == int(layer[1]):
                yield f"model.layers.{place}.{layer[2]}", tensor
