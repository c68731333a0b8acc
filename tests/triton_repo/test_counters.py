from __future__ import annotations

import threading
from collections.abc import Iterator

import fake_triton
import pytest

from specbuild.runtime.session import Chunk
from specbuild.triton_repo.models.speculate.counters import PREFIX, Counters

BANDS = ("0-20", "21+")
LABELS = {"pair": "tiny", "model": "tiny", "version": "1", "instance": "tiny_0", "load": "ab12"}


@pytest.fixture
def counters() -> Iterator[Counters]:
    made = Counters(fake_triton, LABELS, BANDS, 3)
    yield made
    made.close()
    assert fake_triton.Metric.page == {}


def _page(band: str) -> dict[str, float]:
    """Family, with its position where it has one → value."""
    page = {}
    for (family, pairs), value in fake_triton.Metric.page.items():
        labels = dict(pairs)
        assert LABELS.items() <= labels.items()
        if labels["prompt_band"] == band:
            position = f"[{labels['position']}]" if "position" in labels else ""
            page[family.removeprefix(PREFIX) + position] = value
    return page


def test_all_series_are_there_from_the_start_at_zero(counters: Counters) -> None:
    for band in BANDS:
        assert _page(band) == {
            "num_drafts_total": 0,
            "num_draft_tokens_total": 0,
            "num_accepted_tokens_total": 0,
            **{f"num_accepted_tokens_per_pos_total[{position}]": 0 for position in range(3)},
        }


def test_rounds_are_counted_by_band(counters: Counters) -> None:
    counters.count("0-20", [Chunk((1,), 0), Chunk((1, 2, 3), 1, drafted=3, accepted=2), Chunk((4,), 2, 3, 0)])
    counters.count("21+", [Chunk((1, 2, 3, 4), 3, drafted=3, accepted=3)])
    assert set(_page("0-20").values()) == {0}
    counters.publish()
    counters.publish()
    assert list(_page("0-20").values()) == [2, 6, 2, 1, 1, 0]
    assert list(_page("21+").values()) == [1, 3, 3, 1, 1, 1]


def test_nothing_is_lost_between_threads(counters: Counters) -> None:
    def work() -> None:
        for _ in range(500):
            counters.count("0-20", [Chunk((1, 2), 0, drafted=1, accepted=1)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        counters.publish()
    counters.publish()
    assert _page("0-20")["num_drafts_total"] == 2000
