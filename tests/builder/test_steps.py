"""Which inputs a step depends on: each is changed in turn, and exactly the right steps run again."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbuild.builder import steps
from specbuild.builder.stacks import llama
from specbuild.builder.steps import BuildSteps, CalibrationData
from specbuild.builder.toolchain import LIBRARIES, Toolchain
from specbuild.errors import ToolchainError
from specbuild.pair import ModelFacts, Pair, TokenizerFacts
from specbuild.profile import Calibration, Profile
from specbuild.record import digest_of

TOOLS = Toolchain(dict.fromkeys(LIBRARIES, "1.0"))
GRAPH = Toolchain(dict.fromkeys(("openvino", "openvino-tokenizers", "transformers", "nncf"), "1.0"))
TOKENIZER = TokenizerFacts({"a": 0}, (), {}, {"eos": 0}, "{}", None)


def model(name: str, **changes) -> ModelFacts:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 100,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 4096,
        **changes,
    }
    files = {"config.json": f"config of {name}", "model.safetensors": f"weights of {name}", "tokenizer.json": "shared"}
    return ModelFacts(
        folder=Path("/models") / name,
        architecture=config["architectures"][0],
        vocab_size=100,
        hidden_size=128,
        layers=2,
        heads=4,
        kv_heads=4,
        head_dim=32,
        max_position=4096,
        parameters=1,
        eos_ids=(0,),
        tokenizer=TOKENIZER,
        files=files,
        config=config,
        tensors=llama.spec({**config, "architectures": ["LlamaForCausalLM"]}).weights(),
    )


def profile(target="int8", draft="int4", **changes) -> Profile:
    return Profile.model_validate(
        {
            "name": "x",
            "target": {"model": "t", "precision": target},
            "draft": {"model": "d", "precision": draft, **changes.pop("draft_more", {})},
            "budgets": {"b": "max_throughput"},
            "traffic": {"file": "t.jsonl"},
            **changes,
        }
    )


PAIR = Pair(model("t"), model("d"))
DATA = {"draft": CalibrationData(Path("/t.jsonl"), "digest of traffic", Calibration())}


def derive(pair=PAIR, tools=TOOLS, *, exporter="auto", data=DATA, **changes) -> BuildSteps:
    return steps.derive(profile(**changes), pair, tools, exporter=exporter, calibration=data)


def with_file(facts: ModelFacts, name: str, digest: str) -> ModelFacts:
    return replace(facts, files={**facts.files, name: digest})


def version(name: str) -> Toolchain:
    return Toolchain({**TOOLS.versions, name: "2.0"})


def calibration(**changes) -> dict:
    digest = changes.pop("digest", "digest of traffic")
    return {"draft": CalibrationData(Path("/t.jsonl"), digest, Calibration(**changes))}


BASE = derive()
CHANGES = {
    "target weights": (
        lambda: derive(Pair(with_file(PAIR.target, "model.safetensors", "new"), PAIR.draft)),
        {"target"},
    ),
    "target config": (lambda: derive(Pair(with_file(PAIR.target, "config.json", "new"), PAIR.draft)), {"target"}),
    "draft tokenizer": (lambda: derive(Pair(PAIR.target, with_file(PAIR.draft, "tokenizer.json", "new"))), {"draft"}),
    "a new draft file": (lambda: derive(Pair(PAIR.target, with_file(PAIR.draft, "merges.txt", "new"))), {"draft"}),
    "target precision": (lambda: derive(target="fp16"), {"target"}),
    "draft precision": (lambda: derive(draft="bf16"), {"draft"}),
    "calibration text": (lambda: derive(data=calibration(digest="new")), {"draft"}),
    "calibration size": (lambda: derive(data=calibration(size=9)), {"draft"}),
    "calibration length": (lambda: derive(data=calibration(max_seq_length=64)), {"draft"}),
    "calibration source": (lambda: derive(data=calibration(data="other.txt")), {"draft"}),
    "group size": (
        lambda: derive(Pair(PAIR.target, model("d", hidden_size=192, intermediate_size=384))),
        {"draft"},
    ),
    "no calibration": (lambda: derive(data=None), {"draft"}),
    "exporter": (lambda: derive(exporter="optimum"), {"target", "draft"}),
    "openvino": (lambda: derive(tools=version("openvino")), {"target", "draft"}),
    "openvino-tokenizers": (lambda: derive(tools=version("openvino-tokenizers")), {"target", "draft"}),
    "transformers": (lambda: derive(tools=version("transformers")), {"target", "draft"}),
    "nncf": (lambda: derive(tools=version("nncf")), {"target", "draft"}),
    # what an engine does not depend on
    "torch": (lambda: derive(tools=version("torch")), set()),
    "optimum-intel": (lambda: derive(tools=version("optimum-intel")), set()),
    "no torch at all": (lambda: derive(tools=GRAPH), set()),
    "numerics": (lambda: derive(numerics="exact"), set()),
    "limits": (lambda: derive(limits={"max_seq_len": 4000, "max_draft_len": 3}), set()),
    "budgets": (lambda: derive(budgets={"c": {"tpot_p95_ms": 1}}), set()),
    "name": (lambda: derive(name="another"), set()),
    "where the folder lies": (lambda: derive(Pair(replace(PAIR.target, folder=Path("/moved")), PAIR.draft)), set()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_exactly_the_right_steps_run_again(change):
    derived, expected = CHANGES[change]
    after = derived()
    changed = {role for role in ("target", "draft") if getattr(after, role).key != getattr(BASE, role).key}
    assert changed == expected


def test_nncf_matters_only_where_weights_are_compressed():
    before, after = (derive(tools=tools, target="fp16", draft="bf16", data=None) for tools in (TOOLS, version("nncf")))
    assert (before.target.key, before.draft.key) == (after.target.key, after.draft.key)


def test_torch_matters_only_where_optimum_exports():
    before, after = (derive(tools=tools, exporter="optimum") for tools in (TOOLS, version("torch")))
    assert before.target.key != after.target.key
    assert before.draft.key != after.draft.key


def test_our_own_versions_are_part_of_the_key(monkeypatch):
    monkeypatch.setattr(llama, "GRAPH_SCHEMA", 99)
    assert derive().target.key != BASE.target.key
    monkeypatch.undo()
    monkeypatch.setattr(steps, "RECIPE", 99)
    assert derive().target.key != BASE.target.key


def test_the_key_is_the_digest_of_the_inputs():
    assert BASE.draft.key == digest_of(BASE.draft.inputs)
    assert BASE.draft.inputs["group size"] == 128
    assert BASE.draft.inputs["file model.safetensors"] == "weights of d"
    assert BASE.target.inputs["group size"] is None
    assert not [name for name in BASE.target.inputs if "calibration" in name]


@given(st.sampled_from(sorted(BASE.target.inputs)))
def test_no_input_is_without_effect(name):
    assert digest_of({**BASE.target.inputs, name: "something else"}) != BASE.target.key


def test_one_model_in_one_precision_is_one_engine():
    derived = derive(Pair(PAIR.target, PAIR.target), target="int8", draft="int8", data=None)
    assert derived.target is derived.draft
    assert derived.distinct() == (derived.target,)
    assert derived.target.roles == ("target", "draft")
    assert derived.target.title == "target and draft (int8)"
    assert len(BASE.distinct()) == 2


def test_the_graph_is_taken_where_it_can_be():
    assert BASE.target.exporter == "graph"
    other = model("t", architectures=["GPT2LMHeadModel"])
    assert derive(Pair(other, PAIR.draft)).target.exporter == "optimum"
    with pytest.raises(ToolchainError, match="no graph for GPT2LMHeadModel") as caught:
        derive(Pair(other, PAIR.draft), exporter="graph")
    assert caught.value.faults[0].fix == "use --exporter optimum"


@pytest.mark.parametrize(
    ("missing", "fix"),
    [("openvino", "specbuild[openvino]"), ("nncf", "specbuild[openvino]"), ("torch", "CPU build of torch")],
)
def test_a_missing_library_says_how_to_install_it(missing, fix):
    tools = Toolchain({name: "1" for name in LIBRARIES if name != missing})
    with pytest.raises(ToolchainError, match=f"{missing} is not installed") as caught:
        derive(tools=tools, exporter="optimum" if missing == "torch" else "graph")
    assert fix in caught.value.faults[0].fix
    assert caught.value.exit_code == 4
