from __future__ import annotations

import pytest
from virtual_pair import World, engines, profile

from specbuild.errors import ProfileError
from specbuild.measurement import Measurement
from specbuild.runtime.arrivals import Arrivals
from specbuild.runtime.benching import bench
from specbuild.runtime.environment import environment, identity
from specbuild.units import NS_PER_S


def benched(folder, world=None, *, request=None, traffic=None, limits=None, **more):
    world = world or World(noise=0.0)
    shape = {"limits": limits} if limits else {}
    one = profile(folder, count=40, request=request, traffic=traffic, budgets={"even": {"tpot_p95_ms": 25}}, **shape)
    return bench(one, engines(folder), tools=world.tools(), **more), one


def test_off_is_the_default_and_the_measurement_says_what_it_was_made_on(tmp_path):
    measured, one = benched(tmp_path)
    assert measured.measured.policy.is_off
    assert measured.measured.requests == 40
    assert measured.measured.quantiles_ms["tpot_p95"] == pytest.approx(20)
    assert measured.measured.goodput_per_s["even"] > 0
    assert measured.outcomes == {"length": 40}
    assert measured.arrivals == "closed, 1 at once"
    assert measured.environment["python"]
    assert Measurement.read(one.out / "bench_fused_off.json") == measured


def test_a_draft_length_shows_its_acceptance_per_position(tmp_path):
    measured, one = benched(tmp_path, draft_len=3, graph="orchestrated", requests=10)
    assert measured.measured.requests == 10
    assert len(measured.measured.acceptance_per_position) == 3
    assert 0.7 < measured.measured.acceptance_per_position[0] < 0.9
    assert (one.out / "bench_orchestrated_draft_len_3.json").is_file()


def test_arrivals_and_file_can_be_given(tmp_path):
    world = World(noise=0.0)
    begun = world.clock.now
    measured, _ = benched(tmp_path, world, arrivals=Arrivals("recorded", speed=2.0), out=tmp_path / "x" / "m.json")
    assert measured.arrivals == "recorded times, 2 times as fast"
    assert 9 * NS_PER_S < world.clock.now - begun < 20 * NS_PER_S
    assert Measurement.read(tmp_path / "x" / "m.json") == measured
    assert measured.lag_ms["max"] < 100


def test_an_interrupt_writes_what_was_measured(tmp_path):
    world = World(noise=0.0)
    world.clock.interrupt_at = world.clock.now + 10 * NS_PER_S
    measured, one = benched(tmp_path, world)
    assert measured.interrupted
    assert 0 < measured.measured.requests < 40
    assert measured.measured.requests + measured.unsent + measured.outcomes["cancelled"] == 40
    assert Measurement.read(one.out / "bench_fused_off.json").interrupted
    assert world.opened[0].closed


def test_requests_left_out_are_counted(tmp_path):
    measured, _ = benched(
        tmp_path, request=lambda i: {"messages": [{"role": "user", "content": "x"}], "prompt": None} if i < 3 else {}
    )
    assert measured.left_out == {"chat messages, and the model has no chat template": 3}
    assert measured.measured.requests == 37


def test_a_draft_length_beyond_the_limits_is_refused(tmp_path):
    with pytest.raises(ProfileError, match="draft_len 9 is not within 0 to 8"):
        benched(tmp_path, draft_len=9)


def test_nothing_to_replay_is_refused_with_the_reasons(tmp_path):
    with pytest.raises(ProfileError, match="40: prompt longer than"):
        benched(tmp_path, limits={"max_input_len": 2})


def test_the_identity_of_an_environment_leaves_out_what_passes():
    found = environment()
    assert {"cpu", "cores", "memory", "python", "specbuild", "load_average"} <= found.keys()
    assert "load_average" not in identity(found)
    assert identity(found) == identity(environment())
