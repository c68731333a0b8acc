"""Evidence: what the draft thinks of every token that the target produced alone."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specbuild.errors import ProfileError
from specbuild.record import write_atomically

FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Evidence:
    """Per output token of the baseline run, all requests end to end; request i owns ``offsets[i]:offsets[i + 1]``."""

    offsets: npt.NDArray[np.int64]
    """int64 [requests + 1]."""
    prompt_len: IntArray
    """int32 [requests], tokens."""
    max_tokens: IntArray
    """int32 [requests]: output limit; the last rounds of a request draft no further than this."""
    temperature: FloatArray
    """float32 [requests]; 0 is greedy."""
    agree: BoolArray
    """bool [tokens]: the draft's argmax equals the token."""
    accept: FloatArray
    """float32 [tokens]: min(1, q/p) of the realised token; q draft, p target, each under its sampling."""
    entropy: FloatArray
    """float32 [tokens]: entropy of the draft's distribution at temperature 1, nats."""
    identity: dict[str, str]
    """What it was taken on: pair digest, trace digest, numerics, draft source."""

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.offsets) - 1

    def to_bytes(self) -> bytes:
        """The npz file's bytes."""
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            offsets=self.offsets,
            prompt_len=self.prompt_len,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            agree=self.agree,
            accept=self.accept,
            entropy=self.entropy,
            identity=np.frombuffer(json.dumps(self.identity).encode(), np.uint8),
        )
        return buffer.getvalue()

    def write(self, path: Path) -> None:
        """Write as compressed npz, atomically."""
        write_atomically(path, self.to_bytes())

    def digest(self) -> str:
        """sha256 over all arrays and the identity."""
        parts = [
            self.offsets, self.prompt_len, self.max_tokens, self.temperature, self.agree, self.accept, self.entropy,
        ]  # fmt: skip
        total = hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode())
        for part in parts:
            total.update(np.ascontiguousarray(part).tobytes())
        return total.hexdigest()

    @classmethod
    def read(cls, path: Path) -> Evidence:
        """Read an npz file back. Raises ProfileError where it is missing or damaged."""
        try:
            with np.load(path, allow_pickle=False) as data:
                arrays = {name: data[name] for name in data.files if name != "identity"}
                identity = json.loads(data["identity"].tobytes())
            return cls(**arrays, identity=identity)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ProfileError(f"not evidence: {error}", where=str(path), fix="run specbuild tune again") from error
