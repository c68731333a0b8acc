"""``specbuild check``: text, JSON and exit codes."""

import json

import pytest
from small_models import change_json, write_pair, write_profile

from specbuild.cli import main


@pytest.fixture
def profile(tmp_path):
    return write_pair(tmp_path)


def test_a_good_pair(profile, capsys):
    assert main(["check", str(profile)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "small: the pair goes together"
    assert lines[1] == "  target  LlamaForCausalLM, 6 layers x 64, 0.2 M parameters"
    assert lines[3].startswith("  · [memory-plan] ")


def test_warnings_are_shown_with_what_to_do(profile, capsys):
    change_json(profile.parent / "draft/tokenizer_config.json", lambda value: value.pop("chat_template"))
    assert main(["check", str(profile)]) == 0
    out = capsys.readouterr().out
    assert "  ! [chat-template] only the target has a chat template" in out
    assert "      → nothing to do" in out


def test_the_json_of_a_good_pair(profile, capsys):
    assert main(["check", str(profile), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["profile", "ok", "target", "draft", "findings"]
    assert found["ok"] is True
    assert found["target"]["parameters"] == 239424
    assert set(found["target"]["files"]) >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert list(found["findings"][0]) == ["rule", "severity", "what", "where", "fix"]


def test_an_incompatible_pair_ends_with_3(profile, capsys):
    def swap(tokenizer):
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]

    change_json(profile.parent / "draft/tokenizer.json", swap)
    assert main(["check", str(profile), "--json"]) == 3
    captured = capsys.readouterr()
    error = json.loads(captured.out)
    assert (error["error"], error["exit_code"]) == ("PairError", 3)
    assert error["faults"][0]["what"].startswith("[vocabulary] ")
    assert error["faults"][0]["where"] == f"{profile}:3"
    assert "incompatible pair" in captured.err


@pytest.mark.parametrize("damage", ["unlink", "cut", "dtype"])
def test_a_damaged_model_ends_with_2(damage, profile, capsys):
    weights = profile.parent / "target/model.safetensors"
    data = weights.read_bytes()
    if damage == "unlink":
        weights.unlink()
    elif damage == "cut":
        weights.write_bytes(data[: len(data) // 2])
    else:
        weights.write_bytes(data.replace(b'"F16"', b'"I16"'))
    assert main(["check", str(profile)]) == 2
    assert str(weights) in capsys.readouterr().err


def test_a_missing_folder_and_missing_traffic_are_said_together(profile, capsys):
    (profile.parent / "traffic.jsonl").unlink()
    write_profile(profile.parent, draft={"model": "nothing", "precision": "fp16"})
    (profile.parent / "traffic.jsonl").unlink()
    assert main(["check", str(profile)]) == 2
    err = capsys.readouterr().err
    assert f"{profile}:3: no model folder {profile.parent / 'nothing'}" in err
    assert f"{profile}:6: no traffic file" in err
