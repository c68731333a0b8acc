"""Which models our exporter accepts, and the numbers that it takes from config.json."""

import math

import numpy as np
import pytest

from specbuild.builder.stacks import llama

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
}
SHAPES = llama.spec(CONFIG).weights()


def test_a_plain_model_is_accepted():
    assert llama.refusal(CONFIG, SHAPES) is None
    assert llama.weight_faults(CONFIG, SHAPES) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "no graph for GPT2LMHeadModel"),
        ({"architectures": None}, "no graph for no architecture"),
        ({"hidden_act": "gelu"}, "no gelu activation"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 4096}, "sliding-window"),
        ({"architectures": ["MistralForCausalLM"]}, "sliding-window"),  # 4096 is transformers' default
        ({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 64}, "sliding-window"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rotary scaling of type 'yarn'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "rotary scaling of type 'dynamic'"),
        ({"partial_rotary_factor": 0.5}, "partial rotary"),
        ({"intermediate_size": None}, "config.json does not say all that it needs: TypeError"),
        ({"rope_scaling": {"rope_type": "linear"}}, "config.json does not say all that it needs: KeyError: 'factor'"),
    ],
)
def test_what_the_graph_lacks_is_named(changes, reason):
    assert reason in llama.refusal({**CONFIG, **changes}, SHAPES)


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["MistralForCausalLM"], "sliding_window": None},
        {"architectures": ["MistralForCausalLM"], "sliding_window": 8192},
        {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": False, "sliding_window": 64},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
    ],
)
def test_settings_that_are_not_in_use_are_no_obstacle(changes):
    config = {**CONFIG, **changes}
    assert llama.refusal(config, llama.spec(config).weights()) is None


def test_a_weight_that_the_graph_would_leave_out_is_named():
    assert "model.layers.0.extra.weight" in llama.refusal(CONFIG, {**SHAPES, "model.layers.0.extra.weight": (2,)})
    table = {"model.layers.0.self_attn.rotary_emb.inv_freq": (4,)}
    assert llama.refusal(CONFIG, SHAPES | table) is None


def test_missing_and_misshapen_weights_are_all_named():
    shapes = {**SHAPES, "model.norm.weight": (31,)}
    del shapes["model.layers.0.mlp.up_proj.weight"], shapes["lm_head.weight"]
    faults = llama.weight_faults(CONFIG, shapes)
    assert len(faults) == 3
    assert "model.norm.weight is [31] in the weights but [32] by config.json" in faults


def test_biases_and_norms_follow_the_architecture():
    qwen2 = llama.spec({**CONFIG, "architectures": ["Qwen2ForCausalLM"]}).weights()
    assert "model.layers.0.self_attn.v_proj.bias" in qwen2
    assert "model.layers.0.self_attn.o_proj.bias" not in qwen2
    qwen3 = llama.spec({**CONFIG, "architectures": ["Qwen3ForCausalLM"]})
    assert qwen3.head_dim == 128  # transformers' default, whatever hidden_size / heads is
    assert qwen3.weights()["model.layers.0.self_attn.k_norm.weight"] == (128,)


def test_frequencies_of_llama_3():
    """High frequencies stay, low ones are divided by the factor, those between are mixed; either spelling."""
    scaling = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    old = {**CONFIG, "head_dim": 128, "rope_theta": 500000.0, "rope_scaling": {**scaling, "rope_type": "llama3"}}
    new = {**CONFIG, "head_dim": 128, "rope_parameters": {**scaling, "rope_type": "llama3", "rope_theta": 500000.0}}
    plain = llama.spec({**CONFIG, "head_dim": 128, "rope_theta": 500000.0}).inv_freq
    scaled = llama.spec(old).inv_freq
    np.testing.assert_array_equal(scaled, llama.spec(new).inv_freq)
    wavelength = 2 * math.pi / plain
    np.testing.assert_allclose(scaled[wavelength < 8192 / 4], plain[wavelength < 8192 / 4], rtol=1e-6)
    np.testing.assert_allclose(scaled[wavelength > 8192], plain[wavelength > 8192] / 8, rtol=1e-6)
    between = (wavelength > 8192 / 4) & (wavelength < 8192)
    assert between.any()
    assert np.all((scaled[between] < plain[between]) & (scaled[between] > plain[between] / 8))
