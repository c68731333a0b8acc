from __future__ import annotations

import pytest

from specbuild.runtime.graphs import fastest


@pytest.mark.parametrize(
    ("fused", "orchestrated", "chosen"),
    [
        (100.0, 98.0, "orchestrated"),
        (100.0, 96.0, "fused"),
        (98.0, 100.0, "orchestrated"),
        (80.0, 100.0, "orchestrated"),
    ],
)
def test_the_faster_graph_serves_and_of_even_ones_the_orchestrated(fused, orchestrated, chosen):
    assert fastest({"fused": fused, "orchestrated": orchestrated}) == chosen


def test_a_graph_that_stands_alone_serves():
    assert fastest({"fused": 1.0}) == "fused"
