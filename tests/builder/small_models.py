"""Model folders in the Hugging Face layout, made of random numbers in milliseconds, without torch."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from specbuild.builder.modelfolder import write_tensors
from specbuild.builder.stacks import llama

VOCAB = 272
END, USER = "<|end|>", "<|user|>"


def write_model(folder: Path, *, seed: int = 0, dtype: str = "float16", scale: float = 0.08, **changes) -> Path:
    """A Llama-like model of 2 layers x 64 with its tokenizer; ``changes`` go into config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "bos_token_id": VOCAB - 2,
        "eos_token_id": VOCAB - 2,
        **changes,
    }
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {"eos_token_id": config["eos_token_id"]})
    write_tokenizer(folder)
    shapes = llama.spec(config).weights()
    write_weights(folder, random_weights(shapes, seed, scale), dtype)
    return folder


def random_weights(shapes: dict, seed: int, scale: float = 0.08) -> dict:
    """Gaussian matrices, and gains around one that every float type holds exactly."""
    rng = np.random.default_rng(seed)
    drawn = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {name: np.round(8 + x) / 8 if "norm" in name else scale * x for name, x in drawn.items()}


def write_weights(folder: Path, tensors: dict, dtype: str = "float16") -> None:
    if dtype == "float32":
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        write_tensors(folder / "model.safetensors", iter(tensors.items()), dtype)


def tokenizer_json() -> dict:
    """Byte-level BPE: 256 bytes, 14 merges, two special tokens."""
    letters = list(_bytes_to_unicode().values())
    merges = ["Ġ t", "h e", "Ġt he", "i n", "e r", "a n", "Ġ a", "o n", "r e", "Ġ i", "d e", "e f", "d ef", "in g"]
    vocabulary = {token: index for index, token in enumerate(letters + [merge.replace(" ", "") for merge in merges])}
    special = [_added(END, len(vocabulary)), _added(USER, len(vocabulary) + 1)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [merge.split(" ") for merge in merges],
        },
    }


def write_tokenizer(folder: Path) -> None:
    write_json(folder / "tokenizer.json", tokenizer_json())
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "bos_token": END, "pad_token": END}
    template = "{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}"
    write_json(folder / "tokenizer_config.json", {**settings, "chat_template": template})


def write_profile(folder: Path, **changes) -> Path:
    """A profile of ``target`` and ``draft`` in a folder, with traffic; ``changes`` replace its keys."""
    settings = {
        "name": "small",
        "target": {"model": "target", "precision": "fp16"},
        "draft": {"model": "draft", "precision": "fp16"},
        "limits": {"max_batch_size": 2, "max_input_len": 300, "max_seq_len": 400},
        "budgets": {"fast": {"tpot_p95_ms": 50}},
        "traffic": {"file": "traffic.jsonl"},
        **changes,
    }
    lines = [json.dumps({"id": str(n), "prompt": f"def in{n}(the): return the + {n}"}) for n in range(8)]
    (folder / "traffic.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "profile.yaml").write_text("\n".join(f"{key}: {json.dumps(value)}" for key, value in settings.items()))
    return folder / "profile.yaml"


def write_pair(folder: Path, **changes) -> Path:
    """A pair that goes together, and its profile; returns the profile's path."""
    write_model(folder / "target", seed=1, num_hidden_layers=6)
    write_model(folder / "draft", seed=2, num_hidden_layers=1)
    return write_profile(folder, **changes)


def change_json(path: Path, change) -> None:
    """Apply ``change`` to a JSON file in place."""
    value = json.loads(path.read_text())
    change(value)
    write_json(path, value)


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False))


def _added(content: str, index: int) -> dict:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": index, "content": content, **flags}


def _bytes_to_unicode() -> dict:
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
