"""The exact law of the first two tokens that a target alone draws, against what requests drew."""

from __future__ import annotations

from collections import Counter

import numpy as np

from specbuild.runtime.acceptance import shape


def law_of_two(engine, prompt, sampling):
    """(first, second) → probability."""
    return {
        (first, second): mass * share
        for first, mass in _next(engine, prompt, sampling).items()
        for second, share in _next(engine, [*prompt, first], sampling).items()
    }


def _next(engine, tokens, sampling):
    (*_, logits) = engine.score(np.array(tokens), len(tokens) - 1)
    (probs,) = shape(logits, sampling)
    return {int(token): float(probs[token]) for token in np.flatnonzero(probs)}


def distance(outputs, law):
    """Total variation between the law and the first two tokens of the outputs."""
    seen = Counter(tuple(tokens[:2]) for tokens in outputs)
    pairs = set(seen) | set(law)
    return 0.5 * sum(abs(seen[pair] / len(outputs) - law.get(pair, 0.0)) for pair in pairs)
