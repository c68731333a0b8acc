"""Every rule of check: a seeded fault is found by its rule and by no other, with its line."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from small_models import change_json, write_json, write_model, write_pair, write_profile

from specbuild import builder
from specbuild.builder import preflight, rules
from specbuild.builder.machine import Machine
from specbuild.builder.model_rules import PRECISIONS
from specbuild.builder.situation import Situation
from specbuild.builder.stacks.openvino import PRECISIONS as OPENVINO_PRECISIONS
from specbuild.builder.toolchain import Toolchain
from specbuild.errors import PairError, ProfileError
from specbuild.profile import Profile
from specbuild.store import file_digest

ROOT = Path(__file__).parent.parent.parent
GIB = 1 << 30
ROOM = Machine(64 * GIB, 64 * GIB, "machine")
TOOLS = Toolchain({})


def findings(profile: Path, room: Machine = ROOM, tools: Toolchain = TOOLS) -> dict[str, list]:
    """Rule id → what it found, the table of memory left out."""
    loaded = Profile.load(profile)
    found = rules.ask(Situation(loaded, preflight.read(loaded, file_digest).pair, room, tools))
    by_rule: dict[str, list] = {}
    for finding in found:
        by_rule.setdefault(finding.rule, []).append(finding)
    del by_rule["memory-plan"]
    return by_rule


@pytest.fixture
def profile(tmp_path):
    return write_pair(tmp_path)


def test_a_good_pair_has_no_findings(profile):
    assert findings(profile) == {}


def draft_tokenizer(change):
    return lambda folder: change_json(folder / "draft/tokenizer.json", change)


def draft_config(**changes):
    return lambda folder: change_json(folder / "draft/config.json", lambda config: config.update(changes))


def swap(tokenizer):
    """Two tokens trade their ids; merges stay as they are."""
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]


def rename_added(tokenizer):
    tokenizer["added_tokens"][1]["content"] = "<|human|>"


def drop_added(tokenizer):
    """The token stays in the vocabulary, but is no longer split off before merging."""
    dropped = tokenizer["added_tokens"].pop(1)
    tokenizer["model"]["vocab"][dropped["content"]] = dropped["id"]


def swap_merges(tokenizer):
    merges = tokenizer["model"]["merges"]
    merges[3], merges[4] = merges[4], merges[3]


def draft_settings(**changes):
    return lambda folder: change_json(folder / "draft/tokenizer_config.json", lambda value: value.update(changes))


def profile_with(**changes):
    return lambda folder: write_profile(folder, **changes)


def remade(name, **changes):
    return lambda folder: write_model(folder / name, **changes)


def limits(**changes):
    return profile_with(limits={"max_batch_size": 2, "max_input_len": 300, "max_seq_len": 400, **changes})


SEEDED = {
    "weights": (
        lambda f: change_json(f / "draft/config.json", lambda c: c.update(num_hidden_layers=2)),
        "have no model",
    ),
    "int4-groups": (
        lambda f: (
            write_model(f / "draft", seed=2, num_hidden_layers=1, hidden_size=48, head_dim=12),
            write_profile(f, draft={"model": "draft", "precision": "int4"}),
        ),
        "none of 128, 64, 32 columns",
    ),
    "exporter": (draft_config(hidden_act="gelu"), "optimum-intel is not installed"),
    "vocabulary": (draft_tokenizer(swap), "'a' is 64 and 65; 'b' is 65 and 64"),
    "added-tokens": (draft_tokenizer(drop_added), "'<|user|>' is 271 and missing"),
    "merges": (draft_tokenizer(swap_merges), "14 and 14; number 3 is 'i n' and 'e r'"),
    "special-ids": (draft_settings(pad_token="<|user|>"), "the pad token is 270 in the target and 271 in the draft"),
    "tokenizer-pipeline": (draft_tokenizer(lambda t: t.update(normalizer={"type": "NFC"})), 'null and {"type": "NFC"}'),
    "post-processor": (draft_tokenizer(lambda t: t.update(post_processor={"type": "X"})), "post_processor differs"),
    "chat-template": (draft_settings(chat_template=None), "only the target has a chat template"),
    "eos": (
        lambda f: write_json(f / "draft/generation_config.json", {"eos_token_id": [270, 271]}),
        "[270] and [270, 271]",
    ),
    "draft-size": (remade("draft", seed=2, num_hidden_layers=4), "too close to gain"),
    "context": (limits(max_seq_len=505), "need 513 positions, the target has 512"),
    "kv-request": (
        lambda f: (
            write_model(f / "target", num_hidden_layers=6, max_position_embeddings=1 << 22),
            write_model(f / "draft", num_hidden_layers=1, max_position_embeddings=1 << 22),
            write_profile(f, limits={"max_batch_size": 1, "max_input_len": 300, "max_seq_len": 2_000_000}),
        ),
        "target: one request of 2000000 tokens need a KV cache of 1.4 GiB, the pool has 1 GiB",
    ),
    "kv-batch": (
        lambda f: (
            write_model(f / "target", num_hidden_layers=6, max_position_embeddings=1 << 22),
            write_model(f / "draft", num_hidden_layers=1, max_position_embeddings=1 << 22),
            write_profile(f, limits={"max_batch_size": 9, "max_input_len": 300, "max_seq_len": 200_000}),
        ),
        "target: 9 requests of 200000 tokens need",
    ),
}


@pytest.mark.parametrize("rule", SEEDED)
def test_a_seeded_fault_is_named_and_nothing_else(rule, profile):
    seed, what = SEEDED[rule]
    seed(profile.parent)
    found = findings(profile)
    assert list(found) == [rule]
    assert what in found[rule][0].what
    assert found[rule][0].severity == next(item.severity for item in rules.RULES if item.id == rule)


def test_several_faults_are_all_named(profile):
    """A tokenizer of another model breaks more than one rule, and each is told."""
    change_json(profile.parent / "draft/tokenizer.json", rename_added)
    change_json(profile.parent / "draft/tokenizer.json", swap_merges)
    with pytest.raises(PairError) as caught:
        builder.check(Profile.load(profile))
    assert [fault.what.split("]")[0] for fault in caught.value.faults] == ["[vocabulary", "[merges"]
    assert "in 2 tokens, of 272 in the target and 272 in the draft" in caught.value.faults[0].what
    assert caught.value.exit_code == 3


def test_faults_of_the_profile_carry_its_line(profile):
    write_profile(profile.parent, limits={"max_input_len": 300, "max_seq_len": 505})
    with pytest.raises(PairError) as caught:
        builder.check(Profile.load(profile))
    line = 1 + [text.split(":")[0] for text in profile.read_text().splitlines()].index("limits")
    assert {fault.where for fault in caught.value.faults} == {f"{profile}:{line}"}
    assert {fault.fix for fault in caught.value.faults} == {"set max_seq_len to 504 or less"}


def test_end_tokens_beyond_the_head(profile):
    write_json(profile.parent / "target/generation_config.json", {"eos_token_id": 999})
    assert list(findings(profile)) == ["eos", "eos-range"]


def test_a_head_of_more_or_fewer_rows_than_tokens(profile):
    write_model(profile.parent / "draft", seed=2, num_hidden_layers=1, vocab_size=320)
    found = findings(profile)
    assert list(found) == ["head-padding", "heads"]
    assert found["head-padding"][0].what == "draft: 48 rows of the head belong to no token"
    write_model(profile.parent / "draft", seed=2, num_hidden_layers=1, vocab_size=200)
    assert {"head-rows", "heads", "eos-range"} == set(findings(profile))


def test_memory_of_the_machine_and_what_is_free(profile):
    """Three pools of 1 GiB, a quarter for the program, and under 2 MiB of weights."""
    (over,) = findings(profile, Machine(2 * GIB, GIB, "container"))["memory"]
    assert over.what.startswith("serving may need 3.3 GiB, the container has 2.0 GiB:\n")
    assert "KV pool of the draft" in over.what
    assert list(findings(profile, Machine(4 * GIB, 2 * GIB, "machine"))) == ["memory-now"]


def test_the_exporter_that_is_installed_is_no_finding(profile):
    change_json(profile.parent / "draft/config.json", lambda config: config.update(hidden_act="gelu"))
    tools = Toolchain({"torch": "2", "optimum": "2", "optimum-intel": "2"})
    assert findings(profile, tools=tools) == {}


def test_a_precision_that_the_stack_lacks(profile):
    loaded = Profile.load(profile)
    unknown = loaded.target.model_copy(update={"precision": "fp8"})
    pair = preflight.read(loaded, file_digest).pair
    situation = Situation(loaded.model_copy(update={"target": unknown}), pair, ROOM, TOOLS)
    (fault,) = next(rule for rule in rules.RULES if rule.id == "precision").ask(situation)
    assert "openvino has no fp8" in fault.what
    assert PRECISIONS["openvino"] == OPENVINO_PRECISIONS


def test_missing_files_of_both_models_and_the_traffic_are_named_together(profile):
    for name in ("target/config.json", "draft/model.safetensors", "traffic.jsonl"):
        (profile.parent / name).unlink()
    with pytest.raises(ProfileError) as caught:
        builder.check(Profile.load(profile))
    assert len(caught.value.faults) == 3
    assert caught.value.exit_code == 2


def test_calibration_text_that_is_missing_is_named(profile):
    draft = {"model": "draft", "precision": "int4", "calibration": {"data": "nothing.txt"}}
    write_profile(profile.parent, draft=draft)
    with pytest.raises(ProfileError, match=r"cannot read the calibration data.*nothing.txt"):
        builder.check(Profile.load(profile))


def test_every_rule_has_a_seeded_fault_and_its_own_id():
    ids = [rule.id for rule in rules.RULES]
    assert len(set(ids)) == len(ids)
    elsewhere = {"precision", "eos-range", "head-rows", "head-padding", "heads", "memory", "memory-now", "memory-plan"}
    assert set(ids) == set(SEEDED) | elsewhere


def test_the_page_of_rules_is_in_step():
    """docs/checks.md lists every rule with its severity and title, in order."""
    page = (ROOT / "docs/checks.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| (\w+) \| (.*?) \|", page, re.MULTILINE)
    assert rows == [(rule.id, rule.severity, rule.title) for rule in rules.RULES]


def test_a_folder_given_twice_is_read_once(profile, monkeypatch):
    from specbuild.builder import facts

    read = []
    original = facts.read
    monkeypatch.setattr(facts, "read", lambda folder, digest: read.append(folder) or original(folder, digest))
    write_profile(profile.parent, draft={"model": "target", "precision": "int8"})
    pair = preflight.read(Profile.load(profile), file_digest).pair
    assert len(read) == 1
    assert replace(pair.target) == pair.draft
