"""The four counters of speculative decoding on /metrics, with vLLM's suffixes.

A metric update costs a message to the server, so counts are added up here and sent now and then, off the token path.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from specbuild.runtime.session import Chunk

PREFIX = "specbuild_spec_decode_"
FAMILIES = {
    "num_drafts_total": "Rounds in which the draft proposed tokens.",
    "num_draft_tokens_total": "Tokens that the draft proposed.",
    "num_accepted_tokens_total": "Proposed tokens that the target accepted.",
    "num_accepted_tokens_per_pos_total": "Rounds that accepted the proposed token at this position (0 is the first).",
}

Series = tuple[str, str, int | None]
"""Family, prompt band, position."""


class Counters:
    """Counts rounds by prompt band and publishes them through Triton.

    ``labels`` must be this load's own: freeing a metric whose labels another instance or a reloaded version shares
    crashes the server. ``close`` frees them, else the series of an unloaded model would stay for ever.
    """

    def __init__(self, pb_utils: Any, labels: Mapping[str, str], bands: Iterable[str], max_draft_len: int) -> None:
        self._lock = threading.Lock()
        self._counted: Counter[Series] = Counter()
        self._families = {
            name: pb_utils.MetricFamily(name=PREFIX + name, description=text, kind=pb_utils.MetricFamily.COUNTER)
            for name, text in FAMILIES.items()
        }
        self._metrics: dict[Series, Any] = {
            series: self._families[series[0]].Metric(labels={**labels, **_own_labels(series)})
            for series in _all_series(tuple(bands), max_draft_len)
        }

    def count(self, band: str, chunks: Iterable[Chunk]) -> None:
        """Add the rounds of a request whose prompt is in ``band``."""
        with self._lock:
            for chunk in chunks:
                if chunk.drafted:
                    self._counted["num_drafts_total", band, None] += 1
                    self._counted["num_draft_tokens_total", band, None] += chunk.drafted
                    self._counted["num_accepted_tokens_total", band, None] += chunk.accepted
                    for position in range(chunk.accepted):
                        self._counted["num_accepted_tokens_per_pos_total", band, position] += 1

    def publish(self) -> None:
        """Send what was counted since the last time."""
        with self._lock:
            counted, self._counted = self._counted, Counter()
        for series, count in counted.items():
            if count:
                self._metrics[series].increment(count)

    def close(self) -> None:
        """Publish the rest and take the series off /metrics."""
        self.publish()
        self._metrics.clear()
        self._families.clear()


def _all_series(bands: tuple[str, ...], max_draft_len: int) -> Iterable[Series]:
    for band in bands:
        for name in FAMILIES:
            if name.endswith("_per_pos_total"):
                yield from ((name, band, position) for position in range(max_draft_len))
            else:
                yield name, band, None


def _own_labels(series: Series) -> dict[str, str]:
    _, band, position = series
    return {"prompt_band": band} | ({} if position is None else {"position": str(position)})
