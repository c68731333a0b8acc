"""A Llama GGUF file as a Hugging Face model folder, without torch.

The `gguf` package reads the file and dequantizes; the row order of the query and key projections, which llama.cpp
changes for its own rotary layout, is put back; the tokenizer is rebuilt from the file's vocabulary, merges and the
name of its pre-tokenizer. What the file asks for and this module does not know is an error, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from specbuild.builder import modelfolder
from specbuild.builder.modelfolder import FloatArray
from specbuild.errors import BuildError, Fault, PairError, ProfileError, ToolchainError

KNOWN_KEYS = frozenset(
    f"llama.{key}"
    for key in (
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "rope.freq_base",
        "rope.dimension_count",
        "vocab_size",
    )
)
TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
BLOCK_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WORDS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    # digits first, one by one, then gpt-2's rule on what lies between them; said in one expression,
    # because converters to other runtimes let the second rule see across the first one's cuts
    "smollm": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?=\p{N})|\s+(?!\S)|\s+",
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
CONTROL, USER_DEFINED = 3, 4  # token types of the GGUF format

Fields = dict[str, Any]


def import_gguf(gguf: Path, out: Path) -> Path:
    """Write the model in a GGUF file as a Hugging Face folder with fp16 weights; returns ``out``.

    Raises PairError where the architecture or tokenizer is not one of those known here, ProfileError where the file
    cannot be read, ToolchainError where the gguf package is missing, BuildError where ``out`` is in use.
    """
    fields, tensors = _open(gguf)
    _refuse_unknown(fields, [name for name, _ in tensors], gguf)
    tokenizer, tokenizer_config = _tokenizer(fields, gguf)
    tied = "output.weight" not in {name for name, _ in tensors}
    with modelfolder.new_folder(out) as folder:
        modelfolder.write_json(folder / modelfolder.CONFIG, _config(fields, tied))
        modelfolder.write_json(folder / modelfolder.GENERATION_CONFIG, _generation_config(fields))
        modelfolder.write_json(folder / "tokenizer_config.json", tokenizer_config)
        tokenizer.save(str(folder / "tokenizer.json"))
        modelfolder.write_tensors(folder / modelfolder.WEIGHTS, _weights(fields, tensors, gguf), "float16")
    return out


def _open(path: Path) -> tuple[Fields, list[tuple[str, Any]]]:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ToolchainError("the gguf package is not installed", fix="pip install --no-deps gguf") from error
    try:
        reader = GGUFReader(path)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ProfileError(f"not a readable GGUF file: {error}", where=str(path)) from error
    return {name: field.contents() for name, field in reader.fields.items()}, [(t.name, t) for t in reader.tensors]


def _refuse_unknown(fields: Fields, tensors: list[str], path: Path) -> None:
    where = str(path)
    architecture = fields.get("general.architecture")
    if architecture != "llama":
        raise PairError(f"architecture {architecture!r} is not imported, only 'llama'", where=where)
    faults = [Fault(f"unknown key {key!r}", where) for key in sorted(_llama_keys(fields) - KNOWN_KEYS)]
    faults += [Fault(f"unknown tensor {name!r}", where) for name in tensors if _hf_name(name) is None]
    model, pre = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if model != "gpt2" or pre not in WORDS:
        faults.append(
            Fault(f"tokenizer {model!r}/{pre!r} is not imported, only gpt2 with one of {', '.join(WORDS)}", where)
        )
    if faults:
        raise PairError(faults)


def _llama_keys(fields: Fields) -> set[str]:
    return {key for key in fields if key.startswith("llama.")}


def _hf_name(name: str) -> str | None:
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if block and block[2] in BLOCK_TENSORS:
        return f"model.layers.{block[1]}.{BLOCK_TENSORS[block[2]]}.weight"
    stem = name.removesuffix(".weight")
    return f"{TENSORS[stem]}.weight" if stem in TENSORS and stem != name else None


def _head_dim(fields: Fields) -> int:
    default = fields["llama.embedding_length"] // fields["llama.attention.head_count"]
    return int(fields.get("llama.attention.key_length", fields.get("llama.rope.dimension_count", default)))


def _config(fields: Fields, tied: bool) -> dict[str, Any]:
    heads = fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields.get("llama.attention.head_count_kv", heads),
        "head_dim": _head_dim(fields),
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": fields.get("llama.rope.freq_base", 10000.0),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "torch_dtype": "float16",
        **_special_ids(fields),
    }


def _generation_config(fields: Fields) -> dict[str, Any]:
    return _special_ids(fields)


def _special_ids(fields: Fields) -> dict[str, int]:
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    keys = {name: f"tokenizer.ggml.{key}_token_id" for name, key in names.items()}
    return {name: int(fields[key]) for name, key in keys.items() if key in fields}


def _tokenizer(fields: Fields, path: Path) -> tuple[Any, dict[str, Any]]:
    """The `tokenizers.Tokenizer` and what tokenizer_config.json says."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, _merges(fields, vocabulary, path)))
    tokenizer.pre_tokenizer = _pre_tokenizer(fields["tokenizer.ggml.pre"])
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, types, strict=True):
        if kind in (CONTROL, USER_DEFINED):
            tokenizer.add_tokens([AddedToken(token, normalized=False, special=kind == CONTROL)])
    if tokenizer.get_vocab_size() != len(tokens):
        raise BuildError("the tokenizer's vocabulary holds a token twice", where=str(path))
    config = _tokenizer_config(fields)
    if fields.get("tokenizer.ggml.add_bos_token"):
        tokenizer.post_processor = _bos_first(config["bos_token"], fields["tokenizer.ggml.bos_token_id"])
    return tokenizer, config


def _merges(fields: Fields, vocabulary: dict[str, int], path: Path) -> list[tuple[str, str]]:
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    for merge in merges:
        if len(merge) != 2 or not {*merge, "".join(merge)} <= vocabulary.keys():
            raise ProfileError(f"merge {' '.join(merge)!r} joins what the vocabulary does not hold", where=str(path))
    return [(left, right) for left, right in merges]


def _tokenizer_config(fields: Fields) -> dict[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()}
    config: dict[str, Any] = {name: tokens[index] for name, index in ids.items() if index is not None}
    if "tokenizer.chat_template" in fields:
        config["chat_template"] = fields["tokenizer.chat_template"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": fields["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        **config,
    }


def _pre_tokenizer(name: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    split = pre_tokenizers.Split(Regex(WORDS[name]), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _bos_first(token: str, index: int) -> Any:
    from tokenizers import processors

    return processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A $B", special_tokens=[(token, index)])


def _weights(fields: Fields, tensors: list[tuple[str, Any]], path: Path) -> Iterator[tuple[str, FloatArray]]:
    from gguf import dequantize

    heads = fields["llama.attention.head_count"]
    permuted = {"attn_q": heads, "attn_k": fields.get("llama.attention.head_count_kv", heads)}
    for name, tensor in tensors:
        try:
            weights: FloatArray = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        except NotImplementedError as error:
            raise PairError(f"{name}: {tensor.tensor_type.name} weights cannot be read", where=str(path)) from error
        kind = name.split(".")[-2]
        hf_name = _hf_name(name)
        if hf_name is not None:
            yield hf_name, _rotary_rows(weights, permuted[kind]) if kind in permuted else weights


def _rotary_rows(weights: FloatArray, heads: int) -> FloatArray:
    """Rows of a query or key projection from llama.cpp's order (pairs together) to halves, head by head."""
    rows, width = weights.shape
    return weights.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)
