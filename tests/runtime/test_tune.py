from __future__ import annotations

import itertools
import json
import shutil

import numpy as np
import pytest
from virtual_pair import World, engines, profile, quiet
from virtual_session import VirtualSession, Wrong

from specbuild.errors import ProfileError, ServerError, ToolchainError, VerificationError
from specbuild.evidence import Evidence
from specbuild.measurement import Measurement, Measurements
from specbuild.plan import Plan
from specbuild.profile import Profile
from specbuild.runtime.session import Chunk
from specbuild.runtime.steptimes import StepTimesFile
from specbuild.runtime.tuning import tune
from specbuild.units import NS_PER_MS, NS_PER_S


def tuned(folder, world=None, *, max_minutes=2.0, fresh=False, **more):
    world = world or World()
    return tune(profile(folder, **more), engines(folder), max_minutes=max_minutes, fresh=fresh, tools=world.tools())


def test_a_draft_that_pays_is_chosen_and_everything_is_written(tmp_path):
    world = World()
    plan = tuned(tmp_path, world)
    choice = plan.choices["fast"]
    assert choice.policy.max_draft_len >= 4
    assert choice.speedup_over_off.low > 1.5
    assert choice.confirmed
    assert choice.measured.tokens_per_round == pytest.approx(choice.predicted_tokens_per_round, rel=0.02)
    assert plan.graph == "fused"
    assert [line.split(":")[0] for line in plan.graphs_compared] == ["fused", "orchestrated"]
    out = tmp_path / "out" / "virtual"
    assert sorted(path.name for path in out.iterdir()) == [
        "baseline.json",
        "evidence.npz",
        "measurements.json",
        "plan.json",
        "steptimes.json",
    ]
    assert Plan.read(out / "plan.json") == plan
    assert Evidence.read(out / "evidence.npz").digest() == plan.evidence_digest
    assert Measurement.read(out / "baseline.json").measured.policy.is_off
    kept = Measurements.read(out / "measurements.json").measurements
    assert kept[0].measured == plan.off
    assert choice.measured in [one.measured for one in kept]
    assert StepTimesFile.read(out / "steptimes.json").graphs.keys() == {"fused", "orchestrated"}
    assert all(session.closed for session in world.opened)


def test_the_prediction_names_the_length_that_the_formula_makes_best(tmp_path):
    plan = tuned(tmp_path, World(noise=0.0))
    best = max(plan.candidates, key=lambda one: one.speedup)
    rate = 0.8
    expected = {
        k: (1 - rate ** (k + 1)) / (1 - rate) / quiet(1, k) for k in range(9)
    }  # tokens per ms of an endless request whose drafts stand independently
    assert expected[best.draft_len] >= 0.97 * max(expected.values())
    assert [one.draft_len for one in plan.candidates] == list(range(9))
    assert plan.candidates[0].speedup == 1


@pytest.mark.parametrize("concurrency", [8, 16])
def test_at_many_requests_at_once_where_speculation_loses_the_plan_says_off(tmp_path, concurrency):
    plan = tuned(tmp_path, traffic={"concurrency": concurrency}, limits={"max_batch_size": 16})
    choice = plan.choices["fast"]
    assert choice.policy.is_off
    assert choice.meets_budget
    assert any("passes of the target alone" in reason for reason in choice.reasons)
    assert plan.arrivals == f"closed, {concurrency} at once"


def test_the_load_is_kept_at_the_concurrency_while_requests_are_measured(tmp_path):
    batches = []

    def formula(running, k):
        batches.append(running)
        return quiet(running, k)

    tuned(tmp_path, World(round_ms={"fused": formula, "orchestrated": formula}), traffic={"concurrency": 8})
    assert np.mean(np.array(batches) == 8) > 0.85
    assert max(batches) == 8


def test_off_is_chosen_for_a_draft_that_never_agrees(tmp_path):
    plan = tuned(tmp_path, World(rate=0.05))
    assert plan.choices["fast"].policy.is_off
    assert plan.choices["fast"].speedup_over_off.value == 1


def test_a_second_tuning_of_the_same_measures_nothing(tmp_path):
    first = tuned(tmp_path)
    idle = World()
    assert tuned(tmp_path, idle) == first
    assert not idle.opened
    assert tuned(tmp_path, World(seed=3), fresh=True) != first


@pytest.mark.parametrize(
    "change",
    [
        {"traffic": {"concurrency": 2}},
        {"numerics": "exact"},
        {"budgets": {"other": "max_throughput"}},
        {"limits": {"max_draft_len": 4}},
        {"count": 199},
    ],
)
def test_what_the_tuning_depends_on_makes_the_plan_stale(tmp_path, change):
    tuned(tmp_path, max_minutes=0.5)
    world = World()
    tuned(tmp_path, world, max_minutes=0.5, **change)
    assert world.opened


def test_a_damaged_plan_is_made_anew(tmp_path):
    plan = tuned(tmp_path, max_minutes=0.5)
    path = tmp_path / "out" / "virtual" / "plan.json"
    path.write_text(path.read_text()[:100])
    again = tuned(tmp_path, max_minutes=0.5)
    assert again.key == plan.key
    assert Plan.read(path) == again


@pytest.mark.parametrize("minutes", [0.5, 2.0])
def test_time_bounds_the_number_of_requests(tmp_path, minutes):
    world = World()
    begun = world.clock.now
    plan = tuned(tmp_path, world, max_minutes=minutes)
    assert world.clock.now - begun < minutes * 60 * NS_PER_S
    assert plan.requests["trace"] == 200
    assert plan.requests["held_out"] >= 5


def test_a_budget_quantile_draws_on_the_reserve_of_time(tmp_path):
    slow = {graph: lambda running, k: 2 * quiet(running, k) for graph in ("fused", "orchestrated")}
    budgets = {"even": {"tpot_p95_ms": 100.0}}
    world = World(round_ms=slow)
    begun = world.clock.now
    plan = tuned(tmp_path, world, budgets=budgets)
    assert plan.requests["held_out"] >= 20
    assert "tpot_p95" in plan.choices["even"].measured.quantiles_ms
    assert 90 * NS_PER_S < world.clock.now - begun < 120 * NS_PER_S


def test_where_time_is_short_one_finalist_is_replayed_on_enough_requests(tmp_path):
    slow = {graph: lambda running, k: 2.5 * quiet(running, k) for graph in ("fused", "orchestrated")}
    plan = tuned(tmp_path, World(round_ms=slow), budgets={"even": {"tpot_p95_ms": 200.0}})
    (note,) = [note for note in plan.notes if "was not replayed" in note]
    assert "more time (--max-minutes)" in note
    assert len(Measurements.read(tmp_path / "out" / "virtual" / "measurements.json").measurements) == 2
    assert plan.requests["held_out"] >= 15


def test_a_percentile_that_the_held_out_half_can_never_support_is_said_before_anything_runs(tmp_path, capsys):
    plan = tuned(tmp_path, count=30, budgets={"even": {"tpot_p95_ms": 200.0}})
    words = "budget 'even' cannot be judged: tpot_p95 needs 20 held-out requests, the trace leaves 15"
    assert words in plan.notes
    stderr = capsys.readouterr().err
    assert stderr.index(words) < stderr.index("load the fused graph")
    assert not plan.choices["even"].meets_budget


def test_a_budget_that_nothing_meets_still_has_a_plan(tmp_path):
    plan = tuned(tmp_path, budgets={"tight": {"tpot_p95_ms": 0.5}, "fast": "max_throughput"})
    assert not plan.choices["tight"].meets_budget
    assert plan.choices["tight"].policy == plan.choices["fast"].policy
    assert "is not kept" in plan.choices["tight"].reasons[-1]
    assert (tmp_path / "out" / "virtual" / "plan.json").is_file()


def test_exact_numerics_refuse_other_outputs_and_write_no_plan(tmp_path):
    with pytest.raises(VerificationError, match="differ from the target alone") as raised:
        tuned(tmp_path, World(session=Wrong), numerics="exact")
    assert raised.value.exit_code == 8
    assert not (tmp_path / "out").exists()


def test_fast_numerics_count_other_outputs_and_show_how_far_they_are(tmp_path):
    plan = tuned(tmp_path, World(session=Wrong))
    (note,) = [note for note in plan.notes if "greedy output" in note]
    assert "differs from the target alone" in note
    assert "9 to 9 apart" in note  # the virtual target's only gap
    assert "NOT a near-tie" in note


def test_equal_outputs_are_noted_too(tmp_path):
    plan = tuned(tmp_path, numerics="exact")
    assert any(note.startswith("greedy output equals the target alone in ") for note in plan.notes)


def test_sampled_requests_are_tuned_on_the_graph_that_speculates_for_them(tmp_path):
    """Fused runs them on the target alone; the virtual session does so in either graph."""
    plan = tuned(tmp_path, request=lambda i: {"temperature": 0.8 if i % 4 == 0 else 0.0})
    evidence = Evidence.read(tmp_path / "out" / "virtual" / "evidence.npz")
    assert (evidence.temperature > 0).any()
    assert plan.choices["fast"].confirmed


def test_recorded_arrivals_keep_their_rate_in_both_halves(tmp_path):
    world = World()
    sent = []

    class Watched(VirtualSession):
        def submit(self, request, on_chunk):
            sent.append((self.clock.now, request.id))
            return super().submit(request, on_chunk)

    world.session = Watched
    plan = tuned(tmp_path, world, traffic={"arrivals": "recorded"})
    assert plan.arrivals == "recorded times"
    assert plan.choices["fast"].policy.max_draft_len > 0
    turns = [(time, int(name[1:])) for time, name in sent if "#" not in name]
    gaps = [(b[0] - a[0]) / NS_PER_MS for a, b in itertools.pairwise(turns) if b[1] == a[1] + 1]
    assert max(gaps) < 501  # as recorded, or less where nothing ran
    assert np.mean(np.isclose(gaps, 500)) > 0.6


def test_requests_that_do_not_fit_are_counted(tmp_path):
    plan = tuned(tmp_path, limits={"max_input_len": 40, "max_seq_len": 100})
    left_out = [note for note in plan.notes if "were left out: prompt longer than limits.max_input_len (40" in note]
    assert len(left_out) == 1
    kept = json.loads((tmp_path / "out" / "virtual" / "baseline.json").read_text())["left_out"]
    assert sum(kept.values()) > 50


def test_a_trace_that_is_too_short_is_refused(tmp_path):
    with pytest.raises(ProfileError, match="at least 8 requests"):
        tuned(tmp_path, count=6)


def test_a_graph_that_cannot_load_is_left_out_with_a_note(tmp_path):
    world = World()
    tools = world.tools()

    def only_orchestrated(spec):
        if spec.graph == "fused":
            raise ToolchainError("OpenVINO GenAI cannot load it: no paged attention")
        return tools.session(spec)

    changed = type(tools)(only_orchestrated, tools.scorer, tools.tokenizer, tools.clock)
    plan = tune(profile(tmp_path), engines(tmp_path), tools=changed)
    assert plan.graph == "orchestrated"
    assert len(plan.graphs_compared) == 1
    assert any("the fused graph was left out" in note for note in plan.notes)


def test_a_session_that_always_fails_stops_the_tuning(tmp_path):
    class Broken(VirtualSession):
        def _round(self, active):
            return Chunk((), self.clock.now, finish="error", detail="out of memory")

    with pytest.raises(ServerError, match="out of memory"):
        tuned(tmp_path, World(session=Broken))
    assert not (tmp_path / "out").exists()


def test_an_interrupt_leaves_no_plan_and_no_open_session(tmp_path):
    world = World()
    world.clock.interrupt_at = world.clock.now + 60 * NS_PER_S
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path, world)
    assert not (tmp_path / "out").exists()
    assert all(session.closed for session in world.opened)


def test_the_tiny_pair_for_real(tiny_folder, tiny_engines, tmp_path):
    """Real engines from tokens to plan: equal outputs, and a prediction that the replays confirm. No speed is asked."""
    for name in ("profile.yaml", "traffic.jsonl"):
        shutil.copy(tiny_folder / name, tmp_path)
    one = Profile.load(tmp_path / "profile.yaml")
    plan = tune(one, tiny_engines, max_minutes=0.3)
    assert Plan.read(one.out / "plan.json") == plan
    assert one.numerics == "exact"
    assert any(note.startswith("greedy output equals the target alone in ") for note in plan.notes)
    drafting = [
        kept
        for kept in Measurements.read(one.out / "measurements.json").measurements
        if not kept.measured.policy.is_off
    ]
    evidence = Evidence.read(one.out / "evidence.npz")
    assert 0.4 < evidence.agree.mean() < 0.95
    assert drafting
    for kept in drafting:
        assert kept.outcomes.keys() <= {"stop", "length"}
        assert kept.measured.acceptance_length > 1
    for choice in plan.choices.values():
        assert choice.confirmed
    assert tune(one, tiny_engines) == plan
