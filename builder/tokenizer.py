"""The tokenizer as OpenVINO IR, checked against the one it was made from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specbuild.errors import BuildError, Fault

TOKENIZER = "openvino_tokenizer.xml"
DETOKENIZER = "openvino_detokenizer.xml"

BATTERY = (
    "Hello, world!",
    "  two spaces before, one after ",
    "line one\nline two\n\n\tindented\r\n",
    "def f(x: int) -> int:\n    return x**2  # squared\n",
    "It's 3.14159, or 1,000,000 at 12:30; isn't it?",
    "naïve café Ångström – “quoted” …",
    "Straße, Füße; 你好,世界; こんにちは; Привет, мир; مرحبا",
    "emoji 👩‍🚀🎉 and flags 🇩🇪",
    '{"key": [1, 2.5, null], "path": "C:\\\\temp"}',
    "a" * 40 + " " * 9 + "-" * 20,
)
"""Texts that a converted tokenizer must encode and decode as the original does."""


def load(folder: Path) -> Any:
    """The tokenizer of a model folder by transformers, which must be local. Raises BuildError where it cannot be."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # else it says on import that torch is missing
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise BuildError(f"transformers cannot load the tokenizer: {error}", where=str(folder)) from error


def convert(tokenizer: Any, folder: Path) -> tuple[str, ...]:
    """Write a tokenizer as OpenVINO IR and read it back; returns what special tokens it adds, in words.

    Raises BuildError where it cannot be converted, or gives other ids or other text than the original.
    """
    from openvino_tokenizers import convert_tokenizer

    from specbuild.builder import ir

    try:
        encoder, decoder = convert_tokenizer(tokenizer, with_detokenizer=True)
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, NotImplementedError) as error:
        raise BuildError(f"openvino_tokenizers cannot convert the tokenizer: {error}") from error
    ir.save(encoder, folder / TOKENIZER)
    ir.save(decoder, folder / DETOKENIZER)
    verify(tokenizer, folder)
    return (_special_tokens(tokenizer),)


def verify(tokenizer: Any, folder: Path) -> None:
    """Compare a tokenizer with its IR in ``folder``. Raises BuildError with every text that comes out differently."""
    import openvino as ov
    import openvino_tokenizers  # noqa: F401 - registers the operations of tokenizers

    core = ov.Core()
    encoder, decoder = (core.compile_model(folder / name, "CPU") for name in (TOKENIZER, DETOKENIZER))
    faults = []
    for text in (*BATTERY, *(f"a{token}b" for token in list(tokenizer.get_added_vocab())[:8])):
        expected = list(tokenizer(text)["input_ids"])
        found = encoder([text])["input_ids"][0].tolist()
        if found != expected:
            faults.append(Fault(f"{text!r} becomes {_excerpt(found)}, not {_excerpt(expected)}"))
            continue
        plain = tokenizer.decode(expected, skip_special_tokens=True)
        back = str(next(iter(decoder(np.array([expected], np.int64)).values()))[0])
        if back != plain:
            faults.append(Fault(f"{_excerpt(expected)} reads {back!r}, not {plain!r}"))
    if faults:
        raise BuildError([Fault("the tokenizer in OpenVINO IR differs from the original", str(folder)), *faults])


def _special_tokens(tokenizer: Any) -> str:
    added = [token for token in tokenizer("x")["input_ids"] if token not in _plain_ids(tokenizer)]
    if not added:
        return "encoding adds no special token"
    return f"encoding adds the special tokens {tokenizer.convert_ids_to_tokens(added)}"


def _plain_ids(tokenizer: Any) -> Sequence[int]:
    return list(tokenizer("x", add_special_tokens=False)["input_ids"])


def _excerpt(ids: Sequence[int]) -> str:
    return f"{list(ids[:12])}{'…' if len(ids) > 12 else ''}"
