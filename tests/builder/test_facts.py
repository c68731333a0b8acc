"""A model folder read: what is taken from where, and every fault at once."""

import json
import shutil

import pytest
from small_models import END, VOCAB, change_json, write_json, write_model

from specbuild.builder import facts
from specbuild.errors import ProfileError
from specbuild.store import file_digest


@pytest.fixture
def folder(tmp_path):
    return write_model(tmp_path / "m")


def faults(folder) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        facts.read(folder)
    return [f"{fault.where.removeprefix(str(folder) + '/')}: {fault.what}" for fault in caught.value.faults]


def test_the_facts_of_a_model(folder):
    known = facts.read(folder)
    assert known.architecture == "LlamaForCausalLM"
    assert (known.vocab_size, known.layers, known.hidden_size) == (VOCAB, 2, 64)
    assert (known.heads, known.kv_heads, known.head_dim, known.max_position) == (4, 2, 16, 512)
    assert known.parameters == VOCAB * 64 + 64 + 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64)
    assert known.eos_ids == (VOCAB - 2,)
    assert known.tensors["model.layers.1.mlp.down_proj.weight"] == (64, 128)


def test_the_tokenizer_by_content(folder):
    tokenizer = facts.read(folder).tokenizer
    assert len(tokenizer.vocabulary) == VOCAB
    assert tokenizer.vocabulary[END] == VOCAB - 2
    assert tokenizer.added == {END: VOCAB - 2, "<|user|>": VOCAB - 1}
    assert tokenizer.merges[0] == "Ġ t"
    assert tokenizer.special_ids == {"bos": VOCAB - 2, "eos": VOCAB - 2, "pad": VOCAB - 2, "unk": None}
    assert json.loads(tokenizer.pipeline)["pre_tokenizer"]["type"] == "ByteLevel"
    assert tokenizer.chat_template.startswith("{% for m")


def test_the_digests_are_of_all_that_a_build_reads(folder):
    (folder / "README.md").write_text("not read")
    (folder / "chat_template.jinja").write_text("from its own file")
    known = facts.read(folder)
    names = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    assert set(known.files) == names | {"model.safetensors"}
    assert known.files["model.safetensors"] == file_digest(folder / "model.safetensors")
    assert known.tokenizer.chat_template == "from its own file"


def test_older_names_and_defaults(folder):
    renamed = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}

    def rename(config):
        for new, old in renamed.items():
            config[old] = config.pop(new)
        config["n_positions"] = config.pop("max_position_embeddings")
        del config["num_key_value_heads"], config["head_dim"]

    change_json(folder / "config.json", rename)
    known = facts.read(folder)
    assert (known.hidden_size, known.layers, known.heads, known.max_position) == (64, 2, 4, 512)
    assert (known.kv_heads, known.head_dim) == (4, 16)


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [([1, 2], 3, (1, 2)), (None, [3, 4], (3, 4)), (None, None, (VOCAB - 2,)), (0, 5, (0,))],
)
def test_end_tokens_by_precedence(generation, config, expected, folder):
    write_json(folder / "generation_config.json", {"eos_token_id": generation})
    change_json(folder / "config.json", lambda value: value.update(eos_token_id=config))
    assert facts.read(folder).eos_ids == expected


def test_a_unigram_vocabulary_is_numbered_by_place(folder):
    def unigram(tokenizer):
        tokenizer["model"] = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.5], ["b", -2.0]]}

    change_json(folder / "tokenizer.json", unigram)
    tokenizer = facts.read(folder).tokenizer
    assert [tokenizer.vocabulary[token] for token in ("<unk>", "a", "b")] == [0, 1, 2]
    assert tokenizer.merges == ()


def test_named_chat_templates_give_their_default(folder):
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    change_json(folder / "tokenizer_config.json", lambda value: value.update(chat_template=named))
    assert facts.read(folder).tokenizer.chat_template == "d"


def test_no_folder(tmp_path):
    with pytest.raises(ProfileError, match="no such model folder"):
        facts.read(tmp_path / "nothing")


def test_everything_that_is_missing_is_named_at_once(folder):
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).unlink()
    assert faults(folder) == ["config.json: missing", "tokenizer.json: missing", "model.safetensors: missing"]


def test_everything_that_is_damaged_is_named_at_once(folder):
    (folder / "config.json").write_text("{")
    (folder / "generation_config.json").write_bytes(b"\xff")
    (folder / "tokenizer.json").write_text("[]")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-1000])
    shutil.copy(folder / "config.json", folder / "tokenizer_config.json")
    found = faults(folder)
    assert [item.split(":")[0] for item in found] == [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
    ]
    assert found[4] == f"model.safetensors: cut off: {len(whole) - 1000} bytes of {len(whole)}"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"num_hidden_layers": None}, "config.json: num_hidden_layers must be a positive whole number, not None"),
        ({"hidden_size": "64"}, "config.json: hidden_size must be a positive whole number, not '64'"),
        ({"vocab_size": True}, "config.json: vocab_size must be a positive whole number, not True"),
        ({"num_key_value_heads": -1}, "config.json: num_key_value_heads must be a positive whole number, not -1"),
        ({"head_dim": "16"}, "config.json: head_dim must be a positive whole number, not '16'"),
        ({"architectures": []}, "config.json: it names no architecture"),
        ({"quantization_config": {"quant_method": "gptq"}}, "config.json: the model is quantized already"),
    ],
)
def test_a_config_that_says_nonsense(change, fault, folder):
    change_json(folder / "config.json", lambda config: config.update(change))
    assert faults(folder) == [fault]


def test_end_tokens_that_are_no_ids(folder):
    write_json(folder / "generation_config.json", {"eos_token_id": ["</s>"]})
    assert faults(folder) == ["generation_config.json: eos_token_id must be an id or a list of ids, not ['</s>']"]


@pytest.mark.parametrize("damage", [{"model": {}}, {"model": None}, {"added_tokens": [{"id": 3}]}])
def test_a_tokenizer_of_another_shape(damage, folder):
    change_json(folder / "tokenizer.json", lambda tokenizer: tokenizer.update(damage))
    (found,) = faults(folder)
    assert found.startswith("tokenizer.json: not a tokenizer:")


def test_a_missing_shard_is_named(folder):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "x-2.safetensors"}}))
    (found,) = faults(folder)
    assert found.startswith("x-2.safetensors: not a safetensors file:")
