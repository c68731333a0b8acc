"""What a model folder says of itself: read from its files, without torch or transformers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from specbuild.builder import weights
from specbuild.builder.modelfolder import CONFIG, GENERATION_CONFIG, TOKENIZER_FILES
from specbuild.builder.stacks import llama
from specbuild.errors import Fault, ProfileError
from specbuild.pair import ModelFacts, TokenizerFacts
from specbuild.record import canonical_json
from specbuild.store import file_digest

Digest = Callable[[Path], str]

_OTHER_NAMES = {
    "hidden_size": ("n_embd", "d_model"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "max_position_embeddings": ("n_positions", "n_ctx", "max_sequence_length", "max_seq_len", "seq_length"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv"),
    "head_dim": (),
}
"""What older configurations call the same number."""
_OPTIONAL = ("num_key_value_heads", "head_dim")


def read(folder: Path, digest: Digest = file_digest) -> ModelFacts:
    """The facts of a model in the Hugging Face layout; ``digest`` gives the sha256 of a file.

    Raises ProfileError with everything that is missing or damaged, all at once.
    """
    if not folder.is_dir():
        raise ProfileError("no such model folder", where=str(folder), fix="name a Hugging Face model folder")
    reading = _Reading(folder)
    config = reading.object(CONFIG)
    generation = reading.object(GENERATION_CONFIG, optional=True)
    tokenizer = reading.tokenizer()
    tensors = reading.tensors()
    files = reading.digests(digest)
    eos_ids = reading.eos_ids(generation, config, tokenizer)
    numbers = {name: reading.number(config, name) for name in ("vocab_size", *_OTHER_NAMES) if config}
    architectures = config.get("architectures")
    if config and not (isinstance(architectures, list) and architectures):
        reading.fault(CONFIG, "it names no architecture", "add architectures, such as [LlamaForCausalLM]")
    if config.get("quantization_config"):
        reading.fault(CONFIG, "the model is quantized already", "name the folder of the unquantized model")
    if reading.faults or tokenizer is None or not isinstance(architectures, list):
        raise ProfileError(reading.faults)
    return ModelFacts(
        folder=folder,
        architecture=str(architectures[0]),
        vocab_size=numbers["vocab_size"],
        hidden_size=numbers["hidden_size"],
        layers=numbers["num_hidden_layers"],
        heads=numbers["num_attention_heads"],
        kv_heads=numbers["num_key_value_heads"] or numbers["num_attention_heads"],
        head_dim=llama.head_dim(config, numbers["hidden_size"], numbers["num_attention_heads"]),
        max_position=numbers["max_position_embeddings"],
        parameters=sum(tensor.size for tensor in tensors.values()),
        eos_ids=eos_ids,
        tokenizer=tokenizer,
        files=files,
        config=config,
        tensors={name: tensor.shape for name, tensor in tensors.items()},
    )


class _Reading:
    """One folder being read; faults are collected, not raised."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults: list[Fault] = []

    def fault(self, name: str, what: str, fix: str | None = None) -> None:
        self.faults.append(Fault(what, str(self.folder / name), fix))

    def object(self, name: str, *, optional: bool = False) -> dict[str, Any]:
        """A JSON object of the folder; empty where it is damaged, or missing and ``optional``."""
        if optional and not (self.folder / name).exists():
            return {}
        try:
            value = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            self.fault(name, "missing", "name a complete Hugging Face model folder")
        except (OSError, ValueError) as error:
            self.fault(name, f"cannot be read: {error}")
        else:
            if isinstance(value, dict):
                return value
            self.fault(name, "not a JSON object")
        return {}

    def number(self, config: Mapping[str, Any], name: str) -> int:
        """A positive whole number of the configuration; 0 for an optional one that is not given."""
        value = next((config[key] for key in (name, *_OTHER_NAMES.get(name, ())) if config.get(key) is not None), None)
        if value is None and name in _OPTIONAL:
            return 0
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            self.fault(CONFIG, f"{name} must be a positive whole number, not {value!r}")
            return 1
        return value

    def tensors(self) -> dict[str, weights.Tensor]:
        """Every stored tensor by name, from the headers of all weight files."""
        found: dict[str, weights.Tensor] = {}
        try:
            files = weights.weight_files(self.folder)
        except ProfileError as error:
            self.faults += error.faults
            return found
        if not files:
            self.fault("model.safetensors", "missing", "save the model with safetensors (save_pretrained does)")
        for file in files:
            try:
                found.update(weights.read_header(file))
            except ProfileError as error:  # noqa: PERF203 - every damaged file is named
                self.faults += error.faults
        return found

    def tokenizer(self) -> TokenizerFacts | None:
        """The tokenizer by content, or None where it is damaged."""
        name = "tokenizer.json"
        data = self.object(name)
        settings = self.object("tokenizer_config.json", optional=True)
        special = self.object("special_tokens_map.json", optional=True)
        if not data:
            return None
        try:
            added = {item["content"]: int(item["id"]) for item in data.get("added_tokens") or []}
            vocabulary = _vocabulary(data["model"]) | added
            merges = tuple(_merge(pair) for pair in data["model"].get("merges") or [])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            self.fault(name, f"not a tokenizer: {type(error).__name__}: {error}")
            return None
        names = {kind: _token_text(settings.get(f"{kind}_token") or special.get(f"{kind}_token")) for kind in _SPECIAL}
        return TokenizerFacts(
            vocabulary=vocabulary,
            merges=merges,
            added=added,
            special_ids={kind: vocabulary.get(text) if text else None for kind, text in names.items()},
            pipeline=canonical_json({part: data.get(part) for part in _PIPELINE}).decode(),
            chat_template=self.chat_template(settings),
        )

    def chat_template(self, settings: Mapping[str, Any]) -> str | None:
        """The chat template, from its own file or the tokenizer's settings."""
        file = self.folder / "chat_template.jinja"
        if file.is_file():
            return file.read_text(encoding="utf-8", errors="replace")
        template = settings.get("chat_template")
        if isinstance(template, list):
            named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
            template = named.get("default")
        return template if isinstance(template, str) else None

    def eos_ids(
        self, generation: Mapping[str, Any], config: Mapping[str, Any], tokenizer: TokenizerFacts | None
    ) -> tuple[int, ...]:
        """The ids that end a generation: of the generation config, else the config, else the tokenizer."""
        named = {GENERATION_CONFIG: generation.get("eos_token_id"), CONFIG: config.get("eos_token_id")}
        for name, value in named.items():
            ids = value if isinstance(value, list) else [value]
            if value is not None and not all(isinstance(item, int) for item in ids):
                self.fault(name, f"eos_token_id must be an id or a list of ids, not {value!r}")
            elif value is not None:
                return tuple(ids)
        eos = tokenizer.special_ids["eos"] if tokenizer else None
        return () if eos is None else (eos,)

    def digests(self, digest: Digest) -> dict[str, str]:
        """Every file that a build depends on → sha256."""
        names = [CONFIG, GENERATION_CONFIG, *TOKENIZER_FILES, weights.INDEX]
        files = [self.folder / name for name in names if (self.folder / name).is_file()]
        if self.faults:  # the build is off; reading gigabytes would only delay the message
            return {}
        return {file.name: digest(file) for file in [*files, *weights.weight_files(self.folder)]}


_SPECIAL = ("bos", "eos", "pad", "unk")
_PIPELINE = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


def _vocabulary(model: Mapping[str, Any]) -> dict[str, int]:
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):  # Unigram: [token, score] in order of id
        return {str(item[0]): index for index, item in enumerate(vocabulary)}
    return {str(token): int(index) for token, index in vocabulary.items()}


def _merge(pair: str | list[str]) -> str:
    return pair if isinstance(pair, str) else " ".join(pair)


def _token_text(token: Any) -> str | None:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None
