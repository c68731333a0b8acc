import json

import numpy as np
import pytest
from numpy_llama import logits
from test_widen import IDS, make_draft

from specbuild.builder import modelfolder
from specbuild.builder.truncate import truncate
from specbuild.errors import BuildError, PairError, ProfileError


def test_all_layers_kept_is_the_same_network(tmp_path):
    model = make_draft(tmp_path / "model")
    same = truncate(model, tmp_path / "same", keep_layers=(0, 1))
    np.testing.assert_array_equal(logits(same, IDS), logits(model, IDS))


def test_kept_layers_are_renumbered_in_the_order_given(tmp_path):
    model = make_draft(tmp_path / "model", num_hidden_layers=4)
    cut = truncate(model, tmp_path / "cut", keep_layers=(3, 1))
    before, after = modelfolder.read_tensors(model), modelfolder.read_tensors(cut)
    assert json.loads((cut / "config.json").read_text())["num_hidden_layers"] == 2
    for name, tensor in after.items():
        origin = name.replace("layers.0.", "layers.3!").replace("layers.1.", "layers.1!").replace("!", ".")
        np.testing.assert_array_equal(tensor, before[origin])
    assert len(after) == len(before) - 2 * 9
    assert not np.allclose(logits(cut, IDS), logits(truncate(model, tmp_path / "b", keep_layers=(1, 3)), IDS))


def test_a_layer_kept_twice_is_there_twice(tmp_path):
    model = make_draft(tmp_path / "model")
    cut = modelfolder.read_tensors(truncate(model, tmp_path / "cut", keep_layers=(1, 1)))
    name = "mlp.up_proj.weight"
    np.testing.assert_array_equal(cut[f"model.layers.0.{name}"], cut[f"model.layers.1.{name}"])


def test_the_tokenizer_is_the_targets(tmp_path):
    model = make_draft(tmp_path / "model")
    cut = truncate(model, tmp_path / "cut", keep_layers=(0,))
    assert (cut / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("keep", [(), (2,), (-1,)])
def test_layers_that_do_not_exist_are_refused(tmp_path, keep):
    with pytest.raises(ProfileError, match="cannot keep layers"):
        truncate(make_draft(tmp_path / "model"), tmp_path / "cut", keep_layers=keep)
    assert not (tmp_path / "cut").exists()


def test_other_tensor_names_are_refused(tmp_path):
    model = make_draft(tmp_path / "model")
    modelfolder.write_tensors(model / "model.safetensors", [("h.0.attn", np.ones((2, 2), np.float32))], "float16")
    with pytest.raises(PairError, match=r"model\.layers"):
        truncate(model, tmp_path / "cut", keep_layers=(0,))


def test_an_output_in_use_is_left_alone(tmp_path):
    model = make_draft(tmp_path / "model")
    with pytest.raises(BuildError, match="there already"):
        truncate(model, model, keep_layers=(0,))
    assert len(modelfolder.read_tensors(model)) == 2 * 9 + 2
