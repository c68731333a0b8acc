from __future__ import annotations

import functools
import json

import pytest
import virtual_pair
from virtual_pair import World, engines
from virtual_session import Wrong

from specbuild.cli import main
from specbuild.plan import Plan
from specbuild.runtime import tuning
from specbuild.units import NS_PER_S


@pytest.fixture
def world(tmp_path, monkeypatch):
    """The command on virtual engines."""
    one = World()
    monkeypatch.setattr("specbuild.builder.find_engines", lambda profile, store=None: engines(tmp_path))
    monkeypatch.setattr(tuning, "tune", functools.partial(tuning.tune, tools=one.tools()))
    return one


def profile(folder, **more):
    return str(virtual_pair.profile(folder, **more).path)


def test_it_prints_the_plan_on_one_screen_and_narrates_beside_it(world, tmp_path, capsys):
    assert main(["tune", profile(tmp_path), "--max-minutes", "0.5"]) == 0
    stdout, stderr = capsys.readouterr()
    assert stdout.startswith("virtual: fast numerics, fused graph")
    assert max(len(line) for line in stdout.splitlines()) <= 100
    assert "95% interval" in stdout
    assert "confirm on held-out requests" in stderr
    assert str(tmp_path / "out" / "virtual" / "plan.json") in stderr


def test_again_it_says_that_the_plan_is_current_and_prints_it(world, tmp_path, capsys):
    path = profile(tmp_path)
    assert main(["tune", path, "--max-minutes", "0.5"]) == 0
    first = capsys.readouterr().out
    assert main(["tune", path]) == 0
    stdout, stderr = capsys.readouterr()
    assert stdout == first
    assert "the plan is current" in stderr
    assert main(["tune", path, "--fresh", "--max-minutes", "0.5"]) == 0
    assert "the plan is current" not in capsys.readouterr().err


def test_json_is_the_plan(world, tmp_path, capsys):
    assert main(["tune", profile(tmp_path), "--json", "--max-minutes", "0.5"]) == 0
    written = Plan.read(tmp_path / "out" / "virtual" / "plan.json")
    assert Plan.model_validate_json(capsys.readouterr().out) == written


def test_a_budget_that_nothing_keeps_is_exit_6_and_the_plan_is_written(world, tmp_path, capsys):
    path = profile(tmp_path, budgets={"tight": {"tpot_p95_ms": 0.5}, "fast": "max_throughput"})
    assert main(["tune", path]) == 6
    stdout, stderr = capsys.readouterr()
    assert "NOT met" in stdout
    assert "profile.yaml:3: budget 'tight': tpot_p95 0.5 ms is not kept: off" in stderr
    assert Plan.read(tmp_path / "out" / "virtual" / "plan.json").choices.keys() == {"tight", "fast"}
    assert main(["tune", path, "--json"]) == 6  # the current plan misses it, too
    assert json.loads(capsys.readouterr().out)["exit_code"] == 6


def test_exact_numerics_that_are_not_are_exit_8(world, tmp_path, capsys):
    world.session = Wrong
    assert main(["tune", profile(tmp_path, numerics="exact")]) == 8
    assert "differ from the target alone" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_interrupt_is_130_and_leaves_nothing(world, tmp_path, capsys):
    world.clock.interrupt_at = world.clock.now + 10 * NS_PER_S
    assert main(["tune", profile(tmp_path)]) == 130
    assert not (tmp_path / "out").exists()


def test_a_trace_that_is_missing_is_exit_2(world, tmp_path, capsys):
    path = profile(tmp_path)
    (tmp_path / "traffic.jsonl").unlink()
    assert main(["tune", path]) == 2
    assert "traffic.jsonl" in capsys.readouterr().err
