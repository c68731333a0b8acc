"""Our graph without torch: against NumPy, with holes in its cache, in 16 bits, and as the CPU plugin compiles it."""

import json
from collections import Counter

import numpy as np
import numpy_llama
import pytest
from small_models import VOCAB, random_weights, write_model, write_weights

from specbuild.builder.stacks import llama, llama_graph
from specbuild.builder.weights import read_header
from specbuild.errors import BuildError

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
IDS = np.random.default_rng(5).integers(0, VOCAB - 2, 120)


def build(folder, dtype="stored"):
    config = json.loads((folder / "config.json").read_text())
    return llama_graph.build(llama.spec(config), read_header(folder / "model.safetensors"), dtype)


class Pass:
    """One stateful request of batch 1."""

    def __init__(self, model, config=EXACT):
        import openvino as ov

        self.compiled = ov.Core().compile_model(model, "CPU", config)
        self.request = self.compiled.create_infer_request()

    def __call__(self, ids, mask, positions):
        feed = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        batch = {name: np.asarray(value, np.int64)[None] for name, value in feed.items()}
        return self.request.infer({**batch, "beam_idx": np.zeros(1, np.int32)})["logits"][0].copy()


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}, {"head_dim": 8, "num_key_value_heads": 4}])
def test_logits_equal_a_numpy_reference(changes, tmp_path):
    folder = write_model(tmp_path / "m", scale=0.2, **changes)
    found = Pass(build(folder))(IDS, np.ones(len(IDS)), np.arange(len(IDS)))
    np.testing.assert_allclose(found, numpy_llama.logits(folder, IDS.tolist()), atol=2e-4, rtol=0)


def test_zeros_in_the_mask_hide_cached_tokens(tmp_path):
    """Rejected tokens stay in the cache, masked, and the tokens after them are as if they had never been."""
    one = Pass(build(write_model(tmp_path / "m", scale=0.2)))
    prompt, rejected, rest = IDS[:40], IDS[60:63], IDS[40:46]
    one(prompt, np.ones(40), np.arange(40))
    one(rejected, np.ones(43), np.arange(40, 43))
    mask = np.concatenate([np.ones(40), np.zeros(3), np.ones(6)])
    found = one(rest, mask, np.arange(40, 46))
    one.request.reset_state()
    clean = one(IDS[:46], np.ones(46), np.arange(46))[40:]
    np.testing.assert_allclose(found, clean, atol=2e-5, rtol=0)


def test_the_plugin_fuses_norms_rotations_and_attention(tmp_path):
    compiled = Pass(build(write_model(tmp_path / "m"), "fp16"), {}).compiled
    nodes = compiled.get_runtime_model().get_ordered_ops()
    kinds = Counter(node.get_rt_info()["layerType"].astype(str) for node in nodes)
    assert (kinds["RMS"], kinds["RoPE"], kinds["ScaledDotProductAttention"]) == (5, 4, 2)
    assert kinds["FullyConnected"] == 7 * 2 + 1
    assert kinds["Concatenation"] <= 2  # the caches grow inside the attention, not by copies


@pytest.mark.parametrize(("dtype", "rounded"), [("bf16", "bfloat16"), ("fp16", "float16")])
def test_narrowed_weights_are_those_of_a_file_of_that_type(dtype, rounded, tmp_path):
    wide, narrow = (write_model(tmp_path / name, dtype=name, scale=0.2) for name in ("float32", rounded))
    found, expected, unlike = (
        Pass(model)(IDS, np.ones(len(IDS)), np.arange(len(IDS)))
        for model in (build(wide, dtype), build(narrow), build(wide))
    )
    np.testing.assert_array_equal(found, expected)
    assert np.abs(found - unlike).max() > 1e-3


def test_a_weight_beyond_fp16_is_refused(tmp_path):
    folder = write_model(tmp_path / "m")
    tensors = random_weights(llama.spec(json.loads((folder / "config.json").read_text())).weights(), 0)
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = 1e5
    write_weights(folder, tensors, "bfloat16")
    with pytest.raises(BuildError, match=r"layers.1.mlp.up_proj.weight holds 9.98e\+04, beyond fp16"):
        build(folder, "fp16")
    build(folder, "bf16")


def test_16_bit_weights_are_marked_as_compressed(tmp_path):
    """Unmarked they would be folded to float32 when the engine is loaded: twice the memory."""
    from specbuild.builder import ir

    ir.save(build(write_model(tmp_path / "m"), "bf16"), tmp_path / "openvino_model.xml")
    nodes = ir.read(tmp_path / "openvino_model.xml").get_ordered_ops()
    converts = [
        node for node in nodes if node.get_type_name() == "Convert" and len(node.get_output_partial_shape(0)) == 2
    ]
    marked = [node for node in converts if "decompression_0" in node.get_rt_info()]
    assert len(marked) == 7 * 2 + 1
