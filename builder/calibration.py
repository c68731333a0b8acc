"""Token samples for a data-aware weight compression, from recorded traffic or a text file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specbuild import trace
from specbuild.builder.steps import CalibrationData
from specbuild.errors import Fault, ProfileError
from specbuild.profile import Calibration, Profile
from specbuild.trace import Request

_SHORTEST = 4
"""Samples of fewer tokens say little about activations and are left out."""


def source(profile: Profile, settings: Calibration) -> Path:
    """The file that a calibration reads."""
    return profile.resolve(profile.traffic.file if settings.data == "traffic" else settings.data)


def samples(data: CalibrationData, tokenizer: Any) -> list[list[int]]:
    """Up to ``size`` samples of at most ``max_seq_length`` tokens, evenly spread over the file.

    Raises ProfileError where the file is unreadable, or holds no text.
    """
    settings = data.settings
    if settings.data == "traffic":
        tokens = [_tokens(request, tokenizer) for request in trace.load(data.path).take(settings.size).requests]
    else:
        tokens = [list(tokenizer(line)["input_ids"]) for line in _spread(_lines(data.path), settings.size)]
    kept = [ids[: settings.max_seq_length] for ids in tokens if len(ids) >= _SHORTEST]
    if not kept:
        raise ProfileError(
            [Fault(f"no sample of {_SHORTEST} tokens or more", str(data.path), "give calibration more text")]
        )
    return kept


def _tokens(request: Request, tokenizer: Any) -> list[int]:
    if request.token_ids is not None:
        return list(request.token_ids)
    if request.prompt is not None:
        return list(tokenizer(request.prompt)["input_ids"])
    messages = [message.model_dump() for message in request.messages or ()]
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    return list(tokenizer("\n".join(message["content"] for message in messages))["input_ids"])


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise ProfileError(f"cannot read the calibration text: {error}", where=str(path)) from error


def _spread(lines: list[str], count: int) -> list[str]:
    step = max(len(lines) / count, 1.0)
    return [lines[int(index * step)] for index in range(min(count, len(lines)))]
