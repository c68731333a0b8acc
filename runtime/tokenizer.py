"""Text to token ids and back, by the tokenizer that was compiled with the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from specbuild.errors import ToolchainError

WINDOW = 32
"""Tokens decoded together when a stream's next piece of text is wanted; more only within one character."""
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Encoder(Protocol):
    """Text to token ids; what preparing a request needs of a tokenizer."""

    @property
    def has_chat_template(self) -> bool:
        """Whether ``apply_chat_template`` can be used."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text."""

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt text of a chat."""


class Tokenizer:
    """The tokenizer IR of an engine folder (``openvino_tokenizer.xml``, ``openvino_detokenizer.xml``).

    Raises ToolchainError where the folder has none.
    """

    def __init__(self, folder: Path) -> None:
        import openvino_genai

        missing = [
            name for name in ("openvino_tokenizer.xml", "openvino_detokenizer.xml") if not (folder / name).is_file()
        ]
        if missing:
            raise ToolchainError(f"{' and '.join(missing)} missing", where=str(folder), fix="compile the engine again")
        # One thread: a second one only spins, 1 ms of it for each token decoded, which the engine then lacks.
        self._inner: Any = openvino_genai.Tokenizer(folder, INFERENCE_NUM_THREADS=1)

    @property
    def has_chat_template(self) -> bool:
        """Whether ``apply_chat_template`` can be used."""
        return bool(self._inner.chat_template)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text; special tokens (such as a BOS) as the model was trained with."""
        encoded = self._inner.encode(text, add_special_tokens=add_special_tokens)
        ids: list[int] = encoded.input_ids.data[0].tolist()
        return ids

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids; bytes that are not whole UTF-8 become U+FFFD."""
        ids = [int(token) for token in token_ids]
        return str(self._inner.decode(ids, skip_special_tokens=skip_special_tokens)) if ids else ""

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt text of a chat (``role``, ``content``), ending where the assistant's turn begins.

        The text already holds the special tokens: encode it with ``add_special_tokens=False``.
        Raises ToolchainError where the model has no chat template.
        """
        if not self.has_chat_template:
            raise ToolchainError("the model has no chat template", fix="send a prompt instead of messages")
        return str(self._inner.apply_chat_template([dict(m) for m in messages], add_generation_prompt=True))


class Detokenizer:
    """Token ids in, text out as soon as it is whole; the pieces joined equal decoding all ids at once.

    Text is decoded from a window of at most some WINDOW tokens, so the cost of a token does not grow with the length of
    the output; text that ends in a partial character waits for its rest.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._emitted = ""
        """The text of the window that is out."""
        self._whole = 0
        """Ids of the window that this text is of."""

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that these ids complete; empty while a character is unfinished."""
        self._ids.extend(token_ids)
        text = self._tokenizer.decode(self._ids)
        piece = text[len(self._emitted) :]
        if not piece or piece.endswith(_REPLACEMENT):
            return ""
        if len(self._ids) > WINDOW:
            self._ids = self._ids[self._whole :]
            text = self._tokenizer.decode(self._ids)
        self._emitted, self._whole = text, len(self._ids)
        return piece

    def flush(self) -> str:
        """What is left at the end, unfinished characters as U+FFFD."""
        piece = self._tokenizer.decode(self._ids)[len(self._emitted) :]
        self._ids, self._emitted, self._whole = [], "", 0
        return piece
