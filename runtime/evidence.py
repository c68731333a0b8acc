"""Evidence from outputs that the target produced alone: one draft pass over each, no speculation run.

For output token ``y[t]`` after the same prefix, q of the draft, p of the target, each shaped by the request's sampling:
``agree[t]`` is ``argmax q == y[t]`` and ``accept[t] = min(1, q(y[t]) / p(y[t]))``. Greedy drafts stand exactly where
they agree. For sampled drafts: the rule accepts x with mass min(p, q)(x) and the output's law is p, so
P(accepted | the output is x) = min(p, q)(x) / p(x); later positions depend on the prefix alone. The realised output is
therefore enough to know the acceptance law of every draft length (predict.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from specbuild.evidence import Evidence
from specbuild.runtime.acceptance import Logits, shape
from specbuild.runtime.prepare import Prepared
from specbuild.runtime.session import Sampling

ROWS = 32
"""Positions whose distributions are in memory at once: 32 x 150,000 tokens x 8 bytes is 38 MB."""
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Tokens = npt.NDArray[np.int64]


class Scorer(Protocol):
    """An engine that reads a known sequence."""

    def score(self, tokens: Tokens, start: int = 0) -> Iterator[Logits]:
        """The logits after each token from ``start`` on, in order, as float32 [<= some rows, vocab] chunks."""


@dataclass(frozen=True)
class Output:
    """What the target alone answered to a request."""

    request: Prepared
    tokens: Tokens
    """int64 [n], n >= 1."""


@dataclass(frozen=True)
class _Judged:
    agree: Bools
    accept: Floats
    entropy: Floats


def gather(
    outputs: Sequence[Output],
    draft: Scorer,
    target: Scorer | None,
    identity: Mapping[str, str],
    on_done: Callable[[int], None] | None = None,
) -> Evidence:
    """Evidence for these outputs. ``target`` is asked for sampled requests only and may be None without them."""
    judged: list[_Judged] = []
    for output in outputs:
        judged.append(_judge(output, draft, target))
        if on_done is not None:
            on_done(len(judged))
    lengths = [len(output.tokens) for output in outputs]
    return Evidence(
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]),
        prompt_len=np.array([len(output.request.token_ids) for output in outputs], np.int32),
        max_tokens=np.array([output.request.max_tokens for output in outputs], np.int32),
        temperature=np.array([output.request.sampling.temperature for output in outputs], np.float32),
        agree=np.concatenate([np.empty(0, np.bool_), *(one.agree for one in judged)]),
        accept=np.concatenate([np.empty(0, np.float32), *(one.accept for one in judged)]),
        entropy=np.concatenate([np.empty(0, np.float32), *(one.entropy for one in judged)]),
        identity=dict(identity),
    )


def join(a: Evidence, b: Evidence) -> Evidence:
    """The requests of both, a's first, under a's identity."""
    return Evidence(
        offsets=np.concatenate([a.offsets, b.offsets[1:] + a.offsets[-1]]),
        prompt_len=np.concatenate([a.prompt_len, b.prompt_len]),
        max_tokens=np.concatenate([a.max_tokens, b.max_tokens]),
        temperature=np.concatenate([a.temperature, b.temperature]),
        agree=np.concatenate([a.agree, b.agree]),
        accept=np.concatenate([a.accept, b.accept]),
        entropy=np.concatenate([a.entropy, b.entropy]),
        identity=a.identity,
    )


def _judge(output: Output, draft: Scorer, target: Scorer | None) -> _Judged:
    """The three values of every token of one output."""
    sampling, tokens = output.request.sampling, output.tokens
    draft_rows = predicting(draft, output.request.token_ids, tokens)
    parts: list[_Judged] = []
    if sampling.greedy:
        parts.extend(_greedy(q, y) for q, y in _with_tokens(draft_rows, tokens))
    elif target is None:
        raise ValueError("sampled requests need the target's distribution, too")
    else:
        target_rows = predicting(target, output.request.token_ids, tokens)
        pairs = zip(_with_tokens(draft_rows, tokens), target_rows, strict=True)
        parts.extend(_sampled(q, p, y, sampling) for (q, y), p in pairs)
    return _Judged(
        np.concatenate([part.agree for part in parts]),
        np.concatenate([part.accept for part in parts]),
        np.concatenate([part.entropy for part in parts]),
    )


def predicting(scorer: Scorer, prompt: Sequence[int], tokens: Tokens) -> Iterator[Logits]:
    """The logits that predict ``tokens`` after ``prompt``, at most ``ROWS`` positions at a time."""
    sequence = np.concatenate([np.asarray(prompt, np.int64), tokens[:-1].astype(np.int64)])
    for chunk in scorer.score(sequence, len(prompt) - 1):
        for first in range(0, len(chunk), ROWS):
            yield chunk[first : first + ROWS]


def _with_tokens(rows: Iterator[Logits], tokens: Tokens) -> Iterator[tuple[Logits, Tokens]]:
    first = 0
    for chunk in rows:
        yield chunk, tokens[first : first + len(chunk)]
        first += len(chunk)


def _greedy(q: Logits, tokens: Tokens) -> _Judged:
    agree = q.argmax(axis=1) == tokens
    return _Judged(agree, agree.astype(np.float32), _entropy(q))


def _sampled(q: Logits, p: Logits, tokens: Tokens, sampling: Sampling) -> _Judged:
    ours, theirs = _mass(q, tokens, sampling), _mass(p, tokens, sampling)
    ratio = np.divide(ours, theirs, out=np.zeros_like(ours), where=theirs > 0)
    return _Judged(q.argmax(axis=1) == tokens, np.minimum(ratio, 1).astype(np.float32), _entropy(q))


def _mass(logits: Logits, tokens: Tokens, sampling: Sampling) -> npt.NDArray[np.float64]:
    """float64 [rows]: the probability of each row's token; 0 where the model's vocabulary does not have it."""
    known = tokens < logits.shape[1]
    mass: npt.NDArray[np.float64] = shape(logits, sampling)[np.arange(len(tokens)), np.where(known, tokens, 0)]
    return mass * known


def _entropy(logits: Logits) -> Floats:
    """float32 [rows]: entropy at temperature 1, nats: log Z - E[logit]."""
    shifted = (logits - logits.max(axis=1, keepdims=True)).astype(np.float64)
    weights = np.exp(shifted)
    total = weights.sum(axis=1)
    entropy: Floats = (np.log(total) - (weights * shifted).sum(axis=1) / total).astype(np.float32)
    return entropy


def gap(scorer: Scorer, prompt: Sequence[int], tokens: Tokens, other: int) -> float:
    """How far the last of ``tokens`` lies above ``other`` in the target's logits at its place; near 0: a near-tie."""
    rows = list(predicting(scorer, prompt, tokens))
    return float(rows[-1][-1][int(tokens[-1])] - rows[-1][-1][other])
