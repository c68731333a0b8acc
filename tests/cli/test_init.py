"""``specbuild init``: a profile that loads, and examples that run."""

import json

import pytest
from small_models import write_model

from specbuild import builder
from specbuild.cli import main
from specbuild.profile import Profile


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two model folders below the working folder."""
    write_model(tmp_path / "models/big", num_hidden_layers=6)
    write_model(tmp_path / "models/small", num_hidden_layers=1)
    (tmp_path / "traffic.jsonl").write_text('{"id": "1", "prompt": "def"}\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_profile_of_two_folders_passes_the_check(pair, capsys):
    assert main(["init", "models/big", "models/small"]) == 0
    assert capsys.readouterr().out == "profile.yaml\nnext: specbuild check profile.yaml\n"
    profile = Profile.load("profile.yaml")
    assert profile.name == "big"
    assert (profile.target.model, profile.draft.model) == ("models/big", "models/small")
    assert profile.limits.max_seq_len == 512 - 8  # what both models hold, a draft included
    assert builder.check(profile).findings[-1].rule == "memory-plan"


def test_paths_are_relative_to_the_profile(pair):
    assert main(["init", "models/big", str(pair / "models/small"), "-o", "profiles/deep/x.yaml"]) == 0
    profile = Profile.load("profiles/deep/x.yaml")
    assert profile.target.model == "../../models/big"
    assert profile.draft.model == str(pair / "models/small")
    assert profile.resolve(profile.traffic.file) == pair / "traffic.jsonl"
    builder.check(profile)


def test_the_name_is_made_of_what_a_name_may_hold(pair):
    (pair / "models/big").rename(pair / "models/my big (v2)")
    assert main(["init", "models/my big (v2)", "models/small"]) == 0
    assert Profile.load("profile.yaml").name == "my-big-v2"


def test_hub_ids_are_kept(pair, capsys):
    command = ["init", "maker/Model-1.5-Instruct", "maker/small", "--traffic", "t.jsonl", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == {"profile": "profile.yaml"}
    profile = Profile.load("profile.yaml")
    assert profile.name == "Model-1.5-Instruct"
    assert (profile.target.model, profile.draft.model) == ("maker/Model-1.5-Instruct", "maker/small")
    assert profile.limits.max_seq_len == 2048


def test_a_profile_is_not_written_over_unasked(pair, capsys):
    assert main(["init", "a/b", "a/c"]) == 0
    assert main(["init", "models/big", "models/small"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert Profile.load("profile.yaml").name == "b"
    assert main(["init", "models/big", "models/small", "--force"]) == 0
    assert Profile.load("profile.yaml").name == "big"


def test_a_folder_that_is_no_model_is_said(pair, capsys):
    (pair / "models/small/config.json").unlink()
    assert main(["init", "models/big", "models/small"]) == 2
    assert "models/small/config.json: missing" in capsys.readouterr().err
    assert not (pair / "profile.yaml").exists()


@pytest.mark.parametrize(
    "arguments", [[], ["one"], ["a", "b", "c"], ["--example", "tiny"], ["--example", "tiny", "a", "b"]]
)
def test_wrong_arguments_are_a_usage_error(arguments, pair, capsys):
    assert main(["init", *arguments]) == 2
    assert "Usage:" in capsys.readouterr().err


def test_examples_are_listed_and_written(pair, capsys):
    assert main(["init", "--list-examples", "--json"]) == 0
    assert "tiny" in json.loads(capsys.readouterr().out)["examples"]
    assert main(["init", "--list-examples"]) == 0
    assert capsys.readouterr().out.startswith("made  ")
    assert main(["init", "--example", "tiny", "example", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["profile"]
    assert builder.check(Profile.load(written)).target.layers > 1
    assert main(["init", "--example", "nothing", "other"]) == 2
