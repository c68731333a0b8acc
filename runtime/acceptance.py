"""The lossless rules: which drafted tokens stand, and which token follows them.

Greedy: a drafted token stands while it is the target's own choice. Sampled: speculative sampling (Leviathan et al.
2023, "Fast Inference from Transformers via Speculative Decoding", algorithm 1; Chen et al. 2023, "Accelerating Large
Language Model Decoding with Speculative Sampling", algorithm 2). Both leave the law of the output exactly the target's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specbuild.runtime.session import Sampling

Logits = npt.NDArray[np.float32]
Probs = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Verdict:
    """What a round yields: the first ``accepted`` drafted tokens, then ``token`` of the target's own."""

    accepted: int
    token: int


def greedy(drafted: Tokens, logits: Logits) -> Verdict:
    """The leading run of drafted tokens that are the target's argmax, and the argmax behind them.

    drafted: int64 [k]. logits: float32 [k + 1, vocab], row i follows the i-th drafted token.
    """
    choices = logits.argmax(axis=1)
    differs = np.flatnonzero(choices[:-1] != drafted)
    accepted = int(differs[0]) if differs.size else len(drafted)
    return Verdict(accepted, int(choices[accepted]))


def sampled(drafted: Tokens, draft_probs: Probs, target_probs: Probs, rng: np.random.Generator) -> Verdict:
    """Speculative sampling of one round.

    A drafted x stands with probability min(1, p(x)/q(x)); the first that falls is drawn again from max(p - q, 0),
    normalised; where all stand, one more is drawn from p.

    drafted: int64 [k], drawn from q. draft_probs q: [k, vocab]. target_probs p: [k + 1, vocab].
    """
    for position, (token, q, p) in enumerate(zip(drafted, draft_probs, target_probs, strict=False)):
        if rng.random() * q[token] >= p[token]:
            return Verdict(position, draw(_residual(p, q), rng))
    return Verdict(len(drafted), draw(target_probs[-1], rng))


def _residual(p: Probs, q: Probs) -> Probs:
    """max(p - q, 0), not normalised; p itself where rounding leaves nothing (a rejection implies p(x) < q(x))."""
    rest: Probs = np.maximum(p - q, 0.0)
    return rest if rest.any() else p


def draw(weights: Probs, rng: np.random.Generator) -> int:
    """A token drawn with probability proportional to its weight (float64 [vocab], not all zero)."""
    total = weights.cumsum()
    token = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
    return min(token, int(np.searchsorted(total, total[-1])))


def shape(logits: Logits, sampling: Sampling) -> Probs:
    """The distribution that a token is drawn from: float32 [n, vocab] logits to float64 [n, vocab] probabilities.

    top_k, then temperature, then top_p on what is left, as OpenVINO GenAI and transformers apply them (top_k and
    temperature commute). Ties with the k-th logit stay. Needs temperature > 0.
    """
    scaled = logits.astype(np.float64)
    if 0 < sampling.top_k < scaled.shape[1]:
        least = np.partition(logits, -sampling.top_k, axis=1)[:, [-sampling.top_k]]
        scaled[logits < least] = -np.inf
    scaled -= scaled.max(axis=1, keepdims=True)
    scaled /= sampling.temperature
    probs: Probs = np.exp(scaled, out=scaled)
    probs /= probs.sum(axis=1, keepdims=True)
    if sampling.top_p < 1.0:
        for row in probs:
            _keep_nucleus(row, sampling.top_p)
    return probs


def _keep_nucleus(probs: Probs, top_p: float) -> None:
    """Leave the fewest most probable tokens whose mass exceeds ``top_p``, normalised, in float64 [vocab].

    Only tokens of at least (1 - top_p) / vocab are sorted: the others together weigh too little to be needed.
    """
    candidates = np.flatnonzero(probs >= (1.0 - top_p) / len(probs))
    ranked = candidates[np.argsort(-probs[candidates], kind="stable")]
    mass = probs[ranked]
    before = mass.cumsum() - mass
    kept, mass = ranked[before <= top_p], mass[before <= top_p]
    probs[:] = 0.0
    probs[kept] = mass / mass.sum()
