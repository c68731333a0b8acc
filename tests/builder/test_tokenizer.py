"""The tokenizer in OpenVINO IR: the same ids and text as the original, or no engine."""

import pytest
from small_models import change_json, write_json, write_model, write_tokenizer

from specbuild.builder import tokenizer
from specbuild.errors import BuildError


@pytest.fixture
def folder(tmp_path):
    return write_model(tmp_path / "m")


def test_ids_and_text_survive_the_conversion(folder, tmp_path):
    import openvino as ov
    import openvino_tokenizers  # noqa: F401

    original = tokenizer.load(folder)
    assert tokenizer.convert(original, tmp_path) == ("encoding adds no special token",)
    encode = ov.Core().compile_model(tmp_path / "openvino_tokenizer.xml", "CPU")
    texts = ["the <|user|> thing\n", "Ω ≈ ç√∫", " \t def", ""]
    for text in texts:
        assert encode([text])["input_ids"][0].tolist() == original(text)["input_ids"]


def test_special_tokens_that_encoding_adds_are_told(folder, tmp_path):
    def add_begin(value):
        begin = {"SpecialToken": {"id": "<|end|>", "type_id": 0}}
        value["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [270], "tokens": ["<|end|>"]}},
        }

    change_json(folder / "tokenizer.json", add_begin)
    notes = tokenizer.convert(tokenizer.load(folder), tmp_path)
    assert notes == ("encoding adds the special tokens ['<|end|>']",)


def test_a_conversion_that_gives_other_ids_is_refused(folder, tmp_path):
    """The IR of one tokenizer does not pass for another's."""
    original = tokenizer.load(folder)
    tokenizer.convert(original, tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    write_tokenizer(other)

    def swap(value):
        vocabulary = value["model"]["vocab"]
        vocabulary["H"], vocabulary["J"] = vocabulary["J"], vocabulary["H"]

    change_json(other / "tokenizer.json", swap)
    with pytest.raises(BuildError, match="differs from the original") as caught:
        tokenizer.verify(tokenizer.load(other), tmp_path)
    (_, fault) = caught.value.faults
    assert fault.what.startswith("'Hello, world!' becomes [")


def test_a_tokenizer_that_cannot_be_loaded(tmp_path):
    write_json(tmp_path / "tokenizer.json", {"model": {"type": "Nothing"}})
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    with pytest.raises(BuildError, match="transformers cannot load the tokenizer"):
        tokenizer.load(tmp_path)
