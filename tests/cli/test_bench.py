from __future__ import annotations

import functools

import pytest
import virtual_pair
from virtual_pair import World, engines

from specbuild.cli import main
from specbuild.measurement import Measurement
from specbuild.runtime import benching
from specbuild.units import NS_PER_S


@pytest.fixture
def world(tmp_path, monkeypatch):
    """The command on virtual engines."""
    one = World()
    monkeypatch.setattr("specbuild.builder.find_engines", lambda profile, store=None: engines(tmp_path))
    monkeypatch.setattr(benching, "bench", functools.partial(benching.bench, tools=one.tools()))
    return one


def profile(folder, **more):
    return str(virtual_pair.profile(folder, count=30, **more).path)


def test_it_prints_the_card_and_writes_the_measurement(world, tmp_path, capsys):
    assert main(["bench", profile(tmp_path), "--draft-len", "2"]) == 0
    stdout, stderr = capsys.readouterr()
    assert stdout.startswith("virtual: draft_len 2, fused graph, closed, 1 at once, fast numerics")
    for words in ("output tokens/s", "TPOT", "accepted at 1, 2, …", "acceptance length", "sent late"):
        assert words in stdout
    path = tmp_path / "out" / "virtual" / "bench_fused_draft_len_2.json"
    assert str(path) in stderr
    assert Measurement.read(path).measured.requests == 30


def test_off_has_no_acceptance_to_show(world, tmp_path, capsys):
    assert main(["bench", profile(tmp_path), "--draft-len", "off"]) == 0
    stdout = capsys.readouterr().out
    assert stdout.startswith("virtual: off")
    assert "acceptance" not in stdout


def test_json_is_the_measurement_and_flags_take_the_place_of_the_profile(world, tmp_path, capsys):
    out = tmp_path / "m.json"
    arguments = ["--requests", "12", "--concurrency", "4", "--graph", "orchestrated", "-o", str(out), "--json"]
    assert main(["bench", profile(tmp_path, traffic={"arrivals": "recorded"}), *arguments]) == 0
    measured = Measurement.model_validate_json(capsys.readouterr().out)
    assert measured == Measurement.read(out)
    assert (measured.arrivals, measured.graph, measured.measured.requests) == ("closed, 4 at once", "orchestrated", 12)


def test_ctrl_c_writes_what_was_measured_and_is_130(world, tmp_path, capsys):
    world.clock.interrupt_at = world.clock.now + 8 * NS_PER_S
    assert main(["bench", profile(tmp_path)]) == 130
    stdout, stderr = capsys.readouterr()
    assert "not sent" in stdout
    assert "interrupted" in stderr
    assert Measurement.read(tmp_path / "out" / "virtual" / "bench_fused_off.json").interrupted


@pytest.mark.parametrize(
    ("value", "words"), [("x", "'x' is neither a whole number nor 'off'"), ("9", "not within 0 to 8")]
)
def test_a_wrong_draft_length_is_exit_2(world, tmp_path, capsys, value, words):
    assert main(["bench", profile(tmp_path), "--draft-len", value]) == 2
    assert words in capsys.readouterr().err
