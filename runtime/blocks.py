"""KV cache blocks: who holds which, so that sequences of any length share one pool."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Cache:
    """The KV cache of one sequence: blocks it holds and how many of its tokens are valid."""

    blocks: list[int] = field(repr=False)
    capacity: int
    """Tokens that the blocks hold."""
    length: int = 0
    """Tokens whose keys and values are valid; what lies behind is overwritten by the next pass."""

    def trim(self, length: int) -> None:
        """Forget every token behind the first ``length``; free, because nothing moves."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot trim {self.length} tokens to {length}")
        self.length = length


class BlockPool:
    """Equal blocks handed out whole; a sequence reserves all it may need when it opens, so none can starve later."""

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.blocks = blocks
        self.block_tokens = block_tokens
        self._free = list(range(blocks))[::-1]

    @property
    def tokens(self) -> int:
        """Tokens that the whole pool holds."""
        return self.blocks * self.block_tokens

    def open(self, capacity: int) -> Cache | None:
        """A cache for up to ``capacity`` tokens; None while too few blocks are free."""
        needed = -(-capacity // self.block_tokens)
        if needed > len(self._free):
            return None
        return Cache([self._free.pop() for _ in range(needed)], needed * self.block_tokens)

    def close(self, cache: Cache) -> None:
        """Take the blocks back; closing twice is harmless."""
        self._free.extend(cache.blocks)
        cache.blocks = []
        cache.length = cache.capacity = 0
