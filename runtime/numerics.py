"""The plugin settings behind ``numerics``, the same for both graphs."""

from __future__ import annotations

from typing import Any, Literal


def plugin_properties(numerics: Literal["exact", "fast"]) -> dict[str, Any]:
    """CPU plugin settings of OpenVINO.

    ``exact``: a token's logits depend on what else is in the pass by no more than the rounding of float32. ``fast``
    leaves the plugin its own choice: bf16 where the CPU has it, a rounded KV cache, 8-bit activations for compressed
    weights; greedy output may then differ from the target's alone where two tokens are nearly tied.
    """
    if numerics == "fast":
        return {}
    return {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
