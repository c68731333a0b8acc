"""A Llama forward pass in plain NumPy, written from the paper's formulas: the reference of these tests."""

import json
from pathlib import Path

import numpy as np

from specbuild.builder.modelfolder import read_tensors


def logits(folder: Path, ids: list[int]) -> np.ndarray:
    """float64 [len(ids), vocab] of a Hugging Face Llama folder."""
    config = json.loads((folder / "config.json").read_text())
    tensors = {name: tensor.astype(np.float64) for name, tensor in read_tensors(folder).items()}
    epsilon = config["rms_norm_eps"]
    hidden = tensors["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        part = {name.split(f"layers.{layer}.")[1]: t for name, t in tensors.items() if f".layers.{layer}." in name}
        hidden = hidden + attention(part, norm(hidden, part["input_layernorm.weight"], epsilon), config)
        x = norm(hidden, part["post_attention_layernorm.weight"], epsilon)
        gate = x @ part["mlp.gate_proj.weight"].T
        hidden = (
            hidden + (gate / (1 + np.exp(-gate)) * (x @ part["mlp.up_proj.weight"].T)) @ part["mlp.down_proj.weight"].T
        )
    head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
    return norm(hidden, tensors["model.norm.weight"], epsilon) @ head.T


def norm(x, gain, epsilon):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * gain


def attention(part, x, config):
    size, heads, kv_heads = config["head_dim"], config["num_attention_heads"], config["num_key_value_heads"]
    length = len(x)
    q = rotate((x @ part["self_attn.q_proj.weight"].T).reshape(length, heads, size), config)
    k = rotate((x @ part["self_attn.k_proj.weight"].T).reshape(length, kv_heads, size), config)
    v = (x @ part["self_attn.v_proj.weight"].T).reshape(length, kv_heads, size)
    k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(size)
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, v).reshape(length, heads * size) @ part["self_attn.o_proj.weight"].T


def rotate(x, config):
    half = config["head_dim"] // 2
    angles = np.arange(len(x))[:, None] * config["rope_theta"] ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
