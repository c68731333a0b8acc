import errno
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from numpy_llama import logits

from specbuild.builder import modelfolder
from specbuild.builder.widen import PARTS, Shape, _random, widen
from specbuild.errors import BuildError, PairError, ProfileError

CONFIG = {
    "model_type": "llama",
    "vocab_size": 50,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-2,  # large, so that a wrong epsilon shows
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
IDS = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 3]


def make_draft(folder: Path, **changes) -> Path:
    """A random Llama with heads wider than its stream and a tokenizer file."""
    config = {**CONFIG, **changes}
    shape, rng = Shape.of(config), np.random.default_rng(5)
    names = {f"model.layers.{n}.{part}": shape.tensor(part) for n in range(shape.layers) for part in PARTS}
    names |= {"model.embed_tokens.weight": (config["vocab_size"], shape.hidden), "model.norm.weight": (shape.hidden,)}
    if not config["tie_word_embeddings"]:
        names["lm_head.weight"] = (config["vocab_size"], shape.hidden)
    folder.mkdir()
    tensors = [(name, rng.normal(0.2, 0.5, size).astype(np.float32)) for name, size in names.items()]
    modelfolder.write_tensors(folder / "model.safetensors", tensors, "bfloat16")
    modelfolder.write_json(folder / "config.json", config)
    (folder / "tokenizer.json").write_bytes(b'{"a": 1}\r\n')
    return folder


@pytest.mark.parametrize("tied", [True, False])
def test_without_noise_the_target_computes_what_the_draft_does(tmp_path, tied):
    draft = make_draft(tmp_path / "draft", tie_word_embeddings=tied)
    target = widen(draft, tmp_path / "target", layers=5, hidden=48, noise=0.0, seed=1, dtype="bfloat16")
    np.testing.assert_allclose(logits(target, IDS), logits(draft, IDS), rtol=0.02, atol=0.05)


def test_more_noise_is_more_distance(tmp_path):
    draft = make_draft(tmp_path / "draft")
    reference = logits(draft, IDS)
    distances = []
    for noise in (0.1, 0.5, 2.0):
        target = widen(draft, tmp_path / f"t{noise}", layers=4, hidden=48, noise=noise, seed=1)
        distances.append(np.abs(logits(target, IDS) - reference).mean())
    assert 0.0 < distances[0] < distances[1] < distances[2]


def test_every_layer_of_the_target_does_its_work(tmp_path):
    target = widen(make_draft(tmp_path / "draft"), tmp_path / "target", layers=4, hidden=48, noise=1.0, seed=1)
    for name, tensor in modelfolder.read_tensors(target).items():
        assert np.count_nonzero(tensor) > 0.99 * tensor.size, name


def test_the_config_says_the_new_sizes_and_keeps_the_group_size(tmp_path):
    target = widen(make_draft(tmp_path / "draft"), tmp_path / "target", layers=4, hidden=64, noise=1.0, seed=1)
    config = json.loads((target / "config.json").read_text())
    assert Shape.of(config) == Shape(layers=4, hidden=64, intermediate=256, heads=8, kv_heads=4, head_dim=8)
    assert config["torch_dtype"] == "float16"
    assert config["rms_norm_eps"] == pytest.approx(CONFIG["rms_norm_eps"] * 24 / 64)
    assert config["vocab_size"] == CONFIG["vocab_size"]


def test_the_same_arguments_give_the_same_bytes_everywhere(tmp_path):
    draft = make_draft(tmp_path / "draft")
    again = widen(draft, tmp_path / "again", layers=4, hidden=48, noise=1.0, seed=1)
    once = widen(draft, tmp_path / "once", layers=4, hidden=48, noise=1.0, seed=1)
    other = widen(draft, tmp_path / "other", layers=4, hidden=48, noise=1.0, seed=2)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (once, again, other)]
    assert weights[0] == weights[1] != weights[2]


def test_the_random_weights_are_the_recorded_ones():
    values = _random("model.layers.3.mlp.up_proj.weight", (64, 32), 1.0, seed=1)
    assert values.std() == pytest.approx(32**-0.5, rel=0.05)
    digest = hashlib.sha256(values.astype("<f2").tobytes()).hexdigest()
    assert digest == "2862b07a1c86ce77f292c6b609fc5db1024439b6db4de38e0bfa3f7d70674dc5"


def test_the_tokenizer_is_copied_byte_for_byte(tmp_path):
    draft = make_draft(tmp_path / "draft")
    target = widen(draft, tmp_path / "target", layers=4, hidden=48, noise=1.0, seed=1)
    assert (target / "tokenizer.json").read_bytes() == (draft / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_safetensors_library_reads_what_is_written(tmp_path, dtype):
    from safetensors import safe_open

    target = widen(make_draft(tmp_path / "draft"), tmp_path / "t", layers=2, hidden=48, noise=1.0, seed=1, dtype=dtype)
    ours = modelfolder.read_tensors(target)
    with safe_open(target / "model.safetensors", "np") as file:
        assert set(file.keys()) == set(ours)
        for name, tensor in ours.items():
            assert file.get_slice(name).get_dtype() == {"float16": "F16", "bfloat16": "BF16"}[dtype]
            assert tuple(file.get_slice(name).get_shape()) == tensor.shape
        if dtype == "float16":
            np.testing.assert_array_equal(file.get_tensor("model.norm.weight"), ours["model.norm.weight"])


def test_rounding_to_bf16_is_to_nearest_even(tmp_path):
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-16, -1 - 2**-8, 3e38], np.float32)
    modelfolder.write_tensors(tmp_path / "model.safetensors", [("x", values)], "bfloat16")
    read = modelfolder.read_tensors(tmp_path)["x"]
    np.testing.assert_allclose(read[:5], [1.0, 1.0, 1 + 2**-6, 1 + 2**-7, -1.0], rtol=0, atol=0)
    assert np.isfinite(read[5])


@pytest.mark.parametrize(("layers", "hidden"), [(1, 48), (4, 16), (4, 40)])
def test_sizes_that_do_not_hold_the_draft_are_refused(tmp_path, layers, hidden):
    with pytest.raises(ProfileError, match="cannot widen"):
        widen(make_draft(tmp_path / "draft"), tmp_path / "target", layers=layers, hidden=hidden, noise=1.0, seed=1)


def test_another_architecture_is_refused(tmp_path):
    draft = make_draft(tmp_path / "draft", model_type="qwen3")
    with pytest.raises(PairError, match="qwen3"):
        widen(draft, tmp_path / "target", layers=4, hidden=48, noise=1.0, seed=1)
    assert not (tmp_path / "target").exists()


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "mine.txt").write_text("mine")
    with pytest.raises(BuildError, match="there already"):
        widen(make_draft(tmp_path / "draft"), tmp_path / "target", layers=4, hidden=48, noise=1.0, seed=1)
    assert [p.name for p in (tmp_path / "target").iterdir()] == ["mine.txt"]


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    draft = make_draft(tmp_path / "draft")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BuildError, match="No space left"):
        widen(draft, tmp_path / "target", layers=4, hidden=48, noise=1.0, seed=1)
    assert [p.name for p in tmp_path.iterdir()] == ["draft"]


@pytest.mark.parametrize("damage", [b"", b"\xff" * 40, b"\x10" + b"\0" * 7 + b'{"x": 3}        '])
def test_damaged_weights_are_named(tmp_path, damage):
    draft = make_draft(tmp_path / "draft")
    (draft / "model.safetensors").write_bytes(damage)
    with pytest.raises(ProfileError, match=r"model\.safetensors"):
        widen(draft, tmp_path / "target", layers=4, hidden=48, noise=1.0, seed=1)
