from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbuild.errors import ProfileError
from specbuild.profile import Profile

GOOD = """\
schema: 1
name: pair
target: {model: models/target, precision: fp16}
draft: {model: models/draft, precision: int4}
budgets:
  fast: {tpot_p95_ms: 40, ttft_p50_ms: 500.5}
  bulk: max_throughput
traffic: {file: traffic.jsonl}
"""


def load(tmp_path: Path, text: str) -> Profile:
    path = tmp_path / "p.yaml"
    path.write_text(text, encoding="utf-8")
    return Profile.load(path)


def faults(tmp_path: Path, text: str) -> list[str]:
    """``line: what → fix`` of every fault."""
    with pytest.raises(ProfileError) as caught:
        load(tmp_path, text)
    return [
        f"{(fault.where or '').rsplit(':', 1)[-1]}: {fault.what}{f' → {fault.fix}' if fault.fix else ''}"
        for fault in caught.value.faults
    ]


def with_line(line: str) -> str:
    """GOOD with ``line`` in place of the line of the same key, or added as line 9."""
    key = line.split(":")[0]
    kept = [old for old in GOOD.splitlines() if not old.startswith(f"{key}:")]
    return "\n".join([*kept, *[""] * (8 - len(kept)), line]) + "\n"


def test_what_the_file_says_and_the_defaults(tmp_path: Path) -> None:
    profile = load(tmp_path, GOOD)
    assert profile.name == profile.model_name == "pair"
    assert (profile.stack, profile.numerics) == ("openvino", "fast")
    assert profile.budgets == {"fast": {"tpot_p95_ms": 40.0, "ttft_p50_ms": 500.5}, "bulk": "max_throughput"}
    assert profile.serving.host == "127.0.0.1"
    assert load(tmp_path, GOOD + "serving: {model_name: other}\n").model_name == "other"


def test_paths_start_at_the_profile_and_not_at_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deep").mkdir()
    Path("deep/p.yaml").write_text(GOOD)
    profile = Profile.load("deep/p.yaml")
    assert profile.path == Path("deep/p.yaml")
    assert profile.folder == tmp_path / "deep"
    assert profile.out == tmp_path / "deep" / "out" / "pair"
    assert profile.resolve("models/target") == tmp_path / "deep" / "models" / "target"
    assert profile.resolve("../x") == tmp_path / "x"
    assert profile.resolve("/abs") == Path("/abs")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert profile.resolve("~/m") == tmp_path / "m"


def test_later_checks_can_name_the_line(tmp_path: Path) -> None:
    profile = load(tmp_path, GOOD)
    assert profile.where("target", "model").endswith("p.yaml:3")
    assert profile.where("limits", "max_seq_len").endswith("p.yaml:1")
    assert Profile.model_validate(yaml.safe_load(GOOD)).where("target", "model") == "target.model"


def test_the_digest_is_of_the_content(tmp_path: Path) -> None:
    digest = load(tmp_path, GOOD).digest()
    assert load(tmp_path, "# a comment\n" + GOOD.replace("fp16}", "fp16, revision: null}")).digest() == digest
    assert load(tmp_path, GOOD.replace("40", "41")).digest() != digest


def test_json_and_back(tmp_path: Path) -> None:
    profile = load(tmp_path, GOOD)
    profile.write(tmp_path / "p.json")
    assert Profile.read(tmp_path / "p.json").digest() == profile.digest()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("stack: tensorrt", "stack: 'tensorrt' is not known → known here: openvino"),
        ("numerics: exat", "numerics: 'exat' is not known → did you mean 'exact'?"),
        ("schema: 2", "schema: 2 is not known → known here: 1"),
        ("schemaa: 1", "unknown key 'schemaa' → did you mean 'schema'?"),
        ("schema_version: 1", "unknown key 'schema_version' → did you mean 'schema'?"),
        ("name: 123", "name: text is wanted here; put it in quotes (given: 123)"),
        ("name: no", "name: text is wanted here; put it in quotes (given: False)"),
        ("name: a/b",
         "name: letters, digits, '.', '_' and '-', at most 64, the first a letter or digit (given: 'a/b')"),
        ("serving: []", "serving: a mapping of keys to values is wanted here (given: [])"),
        ("serving: {http_prt: 1}", "unknown key 'serving.http_prt' → did you mean 'http_port'?"),
        ("serving: {http_port: 8001}", "serving: http_port, grpc_port and metrics_port must differ"),
        ("serving: {http_port: 0}", "serving.http_port: Input should be greater than or equal to 1 (given: 0)"),
        ("limits: {max_batch_size: yes}", "limits.max_batch_size: Input should be a valid integer (given: True)"),
        ("limits: {max_batch_size: '8'}", "limits.max_batch_size: Input should be a valid integer (given: '8')"),
        ("limits: {max_seq_len: 1000}", "limits: max_input_len (1536) leaves no room for output in max_seq_len (1000)"),
        ("traffic: {file: a, arivals: closed}", "unknown key 'traffic.arivals' → did you mean 'arrivals'?"),
        ("traffic: {arrivals: closed}", "missing key 'traffic.file' → add 'file'"),
        ("target: {model: '', precision: fp16}", "target.model: String should have at least 1 character (given: '')"),
        ("target: {model: a, precision: fp61}", "target.precision: 'fp61' is not known → did you mean 'fp16'?"),
        ("target: {model: a, precision: fp16, calibration: {}}",
         "target: calibration is for int4 weights; fp16 takes none"),
        ("draft: {model: a, precision: int4, calibration: {sise: 1}}",
         "unknown key 'draft.calibration.sise' → did you mean 'size'?"),
    ],
)  # fmt: skip
def test_a_fault_has_its_line_and_a_close_match(tmp_path: Path, line: str, fault: str) -> None:
    assert faults(tmp_path, with_line(line)) == [f"9: {fault}"]


def test_a_long_value_is_cut(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, with_line(f"draft: {['x'] * 60}"))
    assert fault == f"9: draft: a mapping of keys to values is wanted here (given: {repr(['x'] * 60)[:79]}…)"


@pytest.mark.parametrize(
    ("budget", "fault"),
    [
        ("{tpot_p95: 40}", "6: unknown key 'budgets.fast.tpot_p95' → did you mean 'tpot_p95_ms'?"),
        ("{tpot_p95_ms: -1}", "6: budgets.fast.tpot_p95_ms: Input should be greater than 0 (given: -1)"),
        ("{tpot_p95_ms: '40'}", "6: budgets.fast.tpot_p95_ms: Input should be a valid number (given: '40')"),
        ("{tpot_p95_ms: .inf}", "6: budgets.fast.tpot_p95_ms: Input should be a finite number (given: inf)"),
        ("{tpot_p95_ms: .nan}", "6: budgets.fast.tpot_p95_ms: Input should be a finite number (given: nan)"),
        ("{}", "6: budgets.fast: at least one is needed (given: {})"),
        ("max_througput", "6: budgets.fast: 'max_througput' is not known → did you mean 'max_throughput'?"),
    ],
)
def test_faults_of_a_budget(tmp_path: Path, budget: str, fault: str) -> None:
    assert faults(tmp_path, GOOD.replace("{tpot_p95_ms: 40, ttft_p50_ms: 500.5}", budget)) == [fault]


@pytest.mark.parametrize("budget", ["5", "[]", "null", "true"])
def test_a_budget_is_a_word_or_limits(tmp_path: Path, budget: str) -> None:
    (fault,) = faults(tmp_path, GOOD.replace("{tpot_p95_ms: 40, ttft_p50_ms: 500.5}", budget))
    assert "max_throughput or {tpot_p95_ms: 40}" in fault


def test_off_is_no_name_for_a_budget(tmp_path: Path) -> None:
    assert faults(tmp_path, GOOD.replace("fast:", "off:")) == [
        "5: budgets: 'off' is what a policy says, not the name of a budget"
    ]


def test_all_faults_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = (
        GOOD.replace("int4", "int5").replace("fast: {", "fast: {itl_p77_ms: 1, ") + "serving: {http_port: x}\nfoo: 1\n"
    )
    found = faults(tmp_path, text.replace("name: pair\n", ""))
    assert [re.sub(" →.*| .given.*", "", fault) for fault in found] == [
        "1: missing key 'name'",
        "3: draft.precision: 'int5' is not known",
        "5: unknown key 'budgets.fast.itl_p77_ms'",
        "8: serving.http_port: Input should be a valid integer",
        "9: unknown key 'foo'",
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n", "[1]\n", "a\n"])
def test_a_file_that_is_no_mapping(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, text) == ["1: a profile is a mapping of keys to values"]


SCALARS: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats() | st.text(max_size=8)
KEYS = st.sampled_from([
    "schema", "name", "target", "draft", "model", "precision", "calibration", "size", "budgets", "fast", "off",
    "tpot_p95_ms", "traffic", "file", "arrivals", "limits", "max_seq_len", "serving", "http_port", "stack", "x",
])  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=20
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=100)
@given(st.dictionaries(KEYS, VALUES, max_size=8))
def test_any_mapping_is_a_profile_or_refused_with_lines(tmp_path: Path, changes: dict[str, Any]) -> None:
    text = yaml.safe_dump({**yaml.safe_load(GOOD), **changes}, allow_unicode=False)
    with contextlib.suppress(ProfileError):
        load(tmp_path, text)
        return
    assert all(re.match(r"\d+: ", fault) for fault in faults(tmp_path, text))


def test_loading_touches_nothing_but_the_file(tmp_path: Path) -> None:
    load(tmp_path, GOOD)
    assert os.listdir(tmp_path) == ["p.yaml"]  # noqa: PTH208 - names are enough
