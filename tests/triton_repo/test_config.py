from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2 as pb

from specbuild.triton_repo import config
from specbuild.triton_repo.models.speculate.contract import INPUTS, OUTPUTS

GOLDEN = Path(__file__).parent / "golden" / "config.pbtxt"
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", fullmatch=True)
TENSORS = st.builds(
    lambda name, kind, dims: {"name": name, "data_type": kind, "dims": dims},
    st.text(),
    st.sampled_from(sorted(pb.DataType.values())),
    st.lists(st.integers(-1, 2**40), max_size=4),
)


def test_the_config_is_the_golden_one() -> None:
    assert config.to_text(config.build("tiny")) == GOLDEN.read_text()


def test_a_zero_batch_size_is_written_and_everything_is_complete() -> None:
    text = config.to_text(config.build("tiny"))
    assert text.startswith("max_batch_size: 0\n")
    built = config.parse(text)
    assert {one.name for one in built.input} == {tensor.name for tensor in INPUTS}
    assert {one.name for one in built.output} == {tensor.name for tensor in OUTPUTS}
    assert all(one.optional and one.data_type and one.dims for one in built.input)
    assert all(one.data_type and one.dims for one in built.output)
    assert built.model_transaction_policy.decoupled
    assert [(group.kind, group.count) for group in built.instance_group] == [(pb.ModelInstanceGroup.KIND_CPU, 1)]


def test_the_names_of_upstream_models_keep_their_types() -> None:
    types = {tensor.name: (tensor.data_type, tensor.dims) for tensor in (*INPUTS, *OUTPUTS)}
    assert types["text_input"] == types["text_output"] == ("STRING", (1,))
    assert types["max_tokens"] == types["num_draft_tokens"] == types["total_draft_tokens"] == ("INT32", (1,))
    assert types["seed"] == ("UINT64", (1,))
    assert types["acceptance_rate"] == types["temperature"] == types["top_p"] == ("FP32", (1,))
    assert types["stream"] == types["return_perf_metrics"] == types["exclude_input_in_output"] == ("BOOL", (1,))


@given(NAMES)
def test_a_built_config_comes_back_from_its_text(name: str) -> None:
    built = config.build(name)
    assert config.parse(config.to_text(built)) == built


@given(
    st.text(),
    st.integers(0, 2**31 - 1),
    st.lists(TENSORS, max_size=3),
    st.dictionaries(st.text(), st.text(), max_size=3),
)
def test_any_config_comes_back_from_its_text(
    name: str, batch: int, tensors: list[dict[str, Any]], parameters: dict[str, str]
) -> None:
    made = pb.ModelConfig(name=name, max_batch_size=batch, input=[pb.ModelInput(**tensor) for tensor in tensors])
    for key, value in parameters.items():
        made.parameters[key].string_value = value
    text = config.to_text(made)
    assert "max_batch_size" in text
    assert config.parse(text) == made


@pytest.mark.parametrize(
    ("pattern", "replacement", "fault"),
    [
        (r"max_batch_size: 0\n", "", "max_batch_size is not written"),
        (r"max_batch_size: 0", "max_batch_size: 8", "max_batch_size is not what"),
        (r"max_batch_size: 0", "max_batch_size: ${batch}", "cannot be read: 1:17"),
        (r"decoupled: true", "decoupled: false", "model_transaction_policy is not what"),
        (r'name: "tiny"', 'name: "other"', "name is not what"),
        (r'(name: "max_tokens"\s+data_type: )TYPE_INT32', r"\1TYPE_INT64", "input is not what"),
        (r'backend: "python"', 'backends: "python"', "cannot be read"),
        (r"KIND_CPU", "KIND_GPU", "instance_group is not what"),
    ],
)
def test_a_changed_config_is_a_fault(tmp_path: Path, pattern: str, replacement: str, fault: str) -> None:
    path = tmp_path / "config.pbtxt"
    text, count = re.subn(pattern, replacement, GOLDEN.read_text(), count=1)
    assert count == 1
    path.write_text(text)
    faults = [str(one) for one in config.faults(path, "tiny")]
    assert len(faults) == 1
    assert fault in faults[0]


def test_fields_of_the_user_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text(GOLDEN.read_text() + 'parameters { key: "team" value { string_value: "search" } }\n')
    assert list(config.faults(path, "tiny")) == []


def test_a_missing_config_is_a_fault(tmp_path: Path) -> None:
    (fault,) = config.faults(tmp_path / "config.pbtxt", "tiny")
    assert "No such file" in fault.what


def test_an_unknown_field_is_refused_with_its_place() -> None:
    with pytest.raises(text_format.ParseError, match="2:1"):
        config.parse('name: "a"\nspeed: 3\n')
