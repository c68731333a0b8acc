from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_session import prepared

from specbuild.runtime.arrivals import Arrivals
from specbuild.runtime.split import BLOCK, groups, halves, portion, spread
from specbuild.trace import Request, Trace
from specbuild.units import NS_PER_S

CLOSED, RECORDED = Arrivals("closed", 1), Arrivals("recorded")


def trace(sessions):
    return Trace.of([Request(id=f"r{i}", prompt="x", arrival_s=i, session=s) for i, s in enumerate(sessions)])


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=2, max_size=60), st.sampled_from([CLOSED, RECORDED])
)
def test_no_conversation_is_in_both_halves(sessions, arrivals):
    half = halves(trace(sessions), arrivals)
    first, held_out = ({one.session or one.id for one in part} for part in (half.first, half.held_out))
    assert not first & held_out


def test_a_closed_split_loses_nothing_and_a_recorded_one_keeps_whole_blocks():
    whole = trace([None] * 64)
    closed, recorded = halves(whole, CLOSED), halves(whole, RECORDED)
    assert len(closed.first) + len(closed.held_out) == 64
    assert [one.id for one in recorded.first[: BLOCK + 1]] == [*(f"r{i}" for i in range(BLOCK)), f"r{2 * BLOCK}"]


def test_a_portion_at_recorded_times_is_not_thinned():
    whole = trace([None] * 40)
    assert [one.id for one in portion(whole, RECORDED, 4).requests] == ["r0", "r1", "r2", "r3"]
    assert [one.id for one in portion(whole, CLOSED, 4).requests] == ["r0", "r10", "r20", "r30"]
    assert portion(whole, CLOSED, None) is whole


def test_every_beginning_of_a_spread_order_is_even():
    order = spread(range(100))
    assert sorted(order) == list(range(100))
    for count in (5, 10, 20):
        chosen = sorted(order[:count])
        gaps = [b - a for a, b in zip([-1, *chosen], [*chosen, 100], strict=True)]
        assert max(gaps) <= 3 * 100 / count


def test_groups_of_one_are_requests():
    half = [prepared(f"r{i}") for i in range(10)]
    found = groups(half, CLOSED, 8)
    assert sorted(load.requests[0].id for load in found) == sorted(one.id for one in half)
    assert all(len(load.requests) == 1 and not load.lead and not load.fillers for load in found)


@pytest.mark.parametrize(("count", "concurrency", "size"), [(80, 8, 8), (80, 16, 16), (20, 16, 5), (80, 32, 16)])
def test_groups_at_many_at_once_have_a_lead_and_fillers_of_other_requests(count, concurrency, size):
    half = [prepared(f"r{i}", max_tokens=64) for i in range(count)]
    found = groups(half, Arrivals("closed", concurrency), 16)
    assert len(found) >= 4
    for load in found:
        ids = {one.id for one in load.requests}
        assert len(load.requests) == size
        assert len(load.lead) == concurrency
        assert not ids & {one.id.split("#")[0] for one in (*load.lead, *load.fillers)}
        assert len({one.id for one in load.lead}) == concurrency
    assert [one.max_tokens for one in found[0].lead][-1] == 64
    assert found[0].lead[0].max_tokens == -(-64 // concurrency)


def test_recorded_groups_are_followed_by_the_next_block_at_its_own_gaps():
    half = [prepared(f"r{i}", arrival_ns=(i + 100 * (i // BLOCK)) * NS_PER_S) for i in range(2 * BLOCK)]
    load = next(one for one in groups(half, RECORDED, 8) if one.requests[0].id == "r0")
    arrivals = [one.arrival_ns // NS_PER_S for one in (*load.requests, *load.fillers)]
    assert arrivals == list(range(2 * BLOCK))
