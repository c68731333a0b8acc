"""A language model in NumPy whose logits depend on its last two tokens and their place, as its cache has them."""

from __future__ import annotations

import numpy as np

from specbuild.runtime.blocks import Cache
from specbuild.runtime.speculate import Feed

LONGEST = 4096


class ToyCache(Cache):
    def __init__(self, capacity):
        super().__init__([], capacity)
        self.tokens = np.full(capacity + 1, -1, np.int64)


class ToyEngine:
    """Every forward appends to the cache's own tokens, so a stale or missing token changes the logits."""

    def __init__(self, seed, vocab=12, spread=2.0, caches=64):
        rng = np.random.default_rng(seed)
        self.vocab_size = vocab
        self.one = rng.normal(0, spread, (vocab + 1, vocab)).astype(np.float32)
        self.two = rng.normal(0, spread, (vocab + 1, vocab)).astype(np.float32)
        self.place = rng.normal(0, spread / 2, (LONGEST, vocab)).astype(np.float32)
        self.free = caches
        self.passes = 0
        self.poison = None

    def near(self, seed, distance):
        """A draft: the same model, blurred."""
        other = ToyEngine(seed, self.vocab_size)
        other.one = self.one + distance * other.one
        other.two, other.place = self.two, self.place
        return other

    def open(self, capacity):
        if not self.free:
            return None
        self.free -= 1
        return ToyCache(capacity)

    def close(self, cache):
        self.free += 1

    def forward(self, feeds):
        self.passes += 1
        if any(self.poison in feed.tokens for feed in feeds if self.poison is not None):
            raise RuntimeError("the engine broke")
        assert all(cache.length + len(feed.tokens) <= cache.capacity for feed in feeds for cache in [feed.cache])
        return [self._one(feed) for feed in feeds]

    def _one(self, feed):
        cache, count = feed.cache, len(feed.tokens)
        assert count
        cache.tokens[cache.length : cache.length + count] = feed.tokens
        cache.length += count
        places = np.arange(cache.length - feed.rows, cache.length)
        return self.logits(cache.tokens, places)

    def logits(self, tokens, places):
        before = np.where(places > 0, tokens[places - 1], self.vocab_size)
        return self.one[tokens[places]] + self.two[before] + self.place[places]


def alone(engine, prompt, count):
    """The greedy answer of an engine, one token at a time and without cache."""
    tokens = list(prompt)
    for _ in range(count):
        logits = engine.logits(np.array(tokens), np.array([len(tokens) - 1]))
        tokens.append(int(logits[0].argmax()))
    return tokens[len(prompt) :]


def whole(cache, tokens, rows):
    return Feed(cache, np.array(tokens, np.int64), rows)
