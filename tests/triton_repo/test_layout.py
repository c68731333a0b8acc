from __future__ import annotations

import json
from pathlib import Path

from paper import plan_of

from specbuild.engine import Engines
from specbuild.plan import Band, Plan, PolicySpec
from specbuild.profile import Profile
from specbuild.triton_repo.layout import disagreements, layout
from specbuild.triton_repo.models.speculate.settings import Settings

OFF = PolicySpec.fixed(0)


def _content(profile: Profile, engines: Engines, plan: Plan) -> dict[str, bytes]:
    return {
        item.path: item.source.read_bytes() if item.source else item.content or b""
        for item in layout(profile, engines, plan).items
    }


def test_the_repository_holds_all_it_needs_and_nothing_else(profile: Profile, engines: Engines, plan: Plan) -> None:
    files = _content(profile, engines, plan)
    code = {name for name in files if name.startswith("tiny/1/specbuild/")}
    assert set(files) - code == {
        "tiny/config.pbtxt",
        "tiny/1/model.py",
        "tiny/1/plan.json",
        "tiny/1/session.json",
        *(
            f"tiny/1/engines/{role}/{name}"
            for role in ("target", "draft")
            for name in ("engine.json", "openvino_model.xml", "openvino_model.bin")
        ),
    }
    assert "tiny/1/specbuild/runtime/speculate.py" in code
    assert all(name.endswith(".py") for name in code)


def test_nothing_points_out_of_the_repository(profile: Profile, engines: Engines, plan: Plan) -> None:
    for name, content in _content(profile, engines, plan).items():
        assert str(profile.folder).encode() not in content, name


def test_the_settings_are_those_of_profile_engines_and_plan(profile: Profile, engines: Engines, plan: Plan) -> None:
    data = json.loads(_content(profile, engines, plan)["tiny/1/session.json"])
    expected = {
        "pair": "tiny",
        "pair_digest": engines.digest,
        "graph": "orchestrated",
        "numerics": "exact",
        "max_batch_size": 4,
        "max_input_len": 512,
        "max_seq_len": 1024,
        "max_draft_len": 6,
        "kv_cache_gib": 1,
        "vocab_size": 2000,
        "eos_ids": [0, 7],
    }
    assert data | expected == data


def test_settings_come_back_and_open_the_session_inside(
    tmp_path: Path, profile: Profile, engines: Engines, plan: Plan
) -> None:
    (tmp_path / "session.json").write_bytes(_content(profile, engines, plan)["tiny/1/session.json"])
    settings = Settings.read(tmp_path)
    assert Settings.read(tmp_path).to_json().encode() == (tmp_path / "session.json").read_bytes()
    spec = settings.session(tmp_path)
    assert (spec.target, spec.draft) == (tmp_path / "engines" / "target", tmp_path / "engines" / "draft")
    assert (spec.max_draft_len, spec.eos_ids, spec.numerics, spec.speculative) == (6, (0, 7), "exact", True)


def test_the_draft_stays_out_where_every_budget_is_off(tmp_path: Path, profile: Profile, engines: Engines) -> None:
    files = _content(profile, engines, plan_of(engines, {"chat": OFF, "batch": OFF}))
    assert not [name for name in files if "/draft/" in name]
    (tmp_path / "session.json").write_bytes(files["tiny/1/session.json"])
    spec = Settings.read(tmp_path).session(tmp_path)
    assert (spec.draft, spec.speculative) == (None, False)


def test_prompt_bands_name_every_length() -> None:
    settings = Settings("p", "d", "fused", "fast", 1, 1, 2, 1, 1, 10, (0,))
    labels = [settings.prompt_band(length) for length in (1, 20, 21, 200, 201, 5000)]
    assert labels == ["0-20", "0-20", "21-200", "21-200", "201+", "201+"]
    assert settings.band_labels == ("0-20", "21-200", "201+")


def test_a_plan_of_other_engines_disagrees(profile: Profile, engines: Engines, plan: Plan) -> None:
    assert list(disagreements(profile, engines, plan)) == []
    changed = plan.model_copy(update={"pair_digest": "f" * 64, "numerics": "fast"})
    said = [str(fault) for fault in disagreements(profile, engines, changed)]
    assert len(said) == 2
    assert "tuned on pair ffffffffffff" in said[0]
    assert "numerics fast, the profile says exact" in said[1]
    assert all("specbuild tune" in one for one in said)


def test_a_policy_longer_than_the_limits_disagrees(profile: Profile, engines: Engines) -> None:
    bands = (Band(max_prompt_len=20, draft_len=2), Band(max_prompt_len=None, draft_len=7))
    (fault,) = disagreements(profile, engines, plan_of(engines, {"chat": PolicySpec(bands=bands)}))
    assert "'chat' drafts 7 tokens, the profile allows 6" in fault.what
    assert (fault.where or "").endswith("profile.yaml:7")


def test_a_plan_without_budgets_disagrees(profile: Profile, engines: Engines) -> None:
    (fault,) = disagreements(profile, engines, plan_of(engines, {}))
    assert "no budget" in fault.what
