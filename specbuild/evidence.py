"""Evidence: what the draft thinks of every token that the target produced alone."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specbuild.errors import ProfileError
from specbuild.record import canonical_json, write_atomically

FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int32]

_ARRAYS = {
    "offsets": ("int64", "offsets"),
    "prompt_len": ("int32", "requests"),
    "max_tokens": ("int32", "requests"),
    "temperature": ("float32", "requests"),
    "agree": ("bool", "tokens"),
    "accept": ("float32", "tokens"),
    "entropy": ("float32", "tokens"),
}
"""Array → its dtype and what it has one entry for."""

_DAMAGE = (
    OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What numpy and zipfile raise over a file that is no npz or was one."""


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

    def __post_init__(self) -> None:
        """Raises ValueError where the arrays do not belong together."""
        if self.offsets.size < 1 or self.offsets[0] != 0 or np.any(np.diff(self.offsets) < 0):
            raise ValueError("offsets must start at 0 and never fall")
        lengths = {"requests": self.requests, "tokens": int(self.offsets[-1]), "offsets": self.requests + 1}
        for name, (dtype, axis) in _ARRAYS.items():
            array = getattr(self, name)
            if array.dtype != dtype or array.shape != (lengths[axis],):
                raise ValueError(f"{name} is {array.dtype} {array.shape}, not {dtype} ({lengths[axis]},)")

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.offsets) - 1

    def to_bytes(self) -> bytes:
        """The npz file's bytes."""
        buffer = io.BytesIO()
        identity = np.frombuffer(json.dumps(self.identity).encode(), np.uint8)
        np.savez_compressed(buffer, identity=identity, **{name: getattr(self, name) for name in _ARRAYS})
        return buffer.getvalue()

    def write(self, path: Path) -> None:
        """Write as compressed npz, atomically."""
        write_atomically(path, self.to_bytes())

    def digest(self) -> str:
        """sha256 over the identity and every array by name, shape and little-endian bytes."""
        total = hashlib.sha256(canonical_json(self.identity))
        for name, (dtype, _) in _ARRAYS.items():
            array = getattr(self, name)
            total.update(canonical_json([name, dtype, len(array)]))
            total.update(array.astype(np.dtype(dtype).newbyteorder("<")).tobytes())
        return total.hexdigest()

    @classmethod
    def read(cls, path: Path) -> Evidence:
        """Read an npz file back. Raises ProfileError where it is missing or damaged."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
                arrays = {name: data[name] for name in _ARRAYS}
                identity = json.loads(data["identity"].tobytes())
            return cls(**arrays, identity=identity)
        except _DAMAGE as error:
            raise ProfileError(f"not evidence: {error}", where=str(path), fix="run specbuild tune again") from error
