"""Compressed engines: their sizes, their closeness to the model, and calibration."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_models import VOCAB, write_model, write_profile

from specbuild.builder import calibration, facts, memory, quantize, tokenizer
from specbuild.builder.groups import group_size
from specbuild.builder.stacks import llama, llama_graph
from specbuild.builder.steps import CalibrationData
from specbuild.builder.weights import read_header
from specbuild.errors import BuildError, ProfileError
from specbuild.profile import Calibration
from specbuild.store import file_digest

IDS = np.random.default_rng(5).integers(0, VOCAB - 2, 60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("quantize") / "m", scale=0.06, hidden_size=128, head_dim=32)


@pytest.fixture(scope="module")
def exact(folder):
    return logits(build(folder))


def build(folder: Path, dtype="stored"):
    config = json.loads((folder / "config.json").read_text())
    return llama_graph.build(llama.spec(config), read_header(folder / "model.safetensors"), dtype)


def logits(model) -> np.ndarray:
    import openvino as ov

    hints = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
    request = ov.Core().compile_model(model, "CPU", hints).create_infer_request()
    feed = {"input_ids": IDS[None], "attention_mask": np.ones((1, 60)), "position_ids": np.arange(60)[None]}
    batch = {name: value.astype(np.int64) for name, value in feed.items()}
    return request.infer({**batch, "beam_idx": np.zeros(1, np.int32)})["logits"][0]


def error(found: np.ndarray, exact: np.ndarray) -> float:
    """Root mean square, relative."""
    return float(np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()))


def size_on_disk(model, folder: Path) -> int:
    from specbuild.builder import ir

    ir.save(model, folder / "m.xml")
    return (folder / "m.bin").stat().st_size


@pytest.mark.parametrize(("precision", "bound"), [("fp16", 0.0), ("bf16", 0.02), ("int8", 0.05), ("int4", 0.4)])
def test_size_is_as_foretold_and_logits_are_close(precision, bound, folder, exact, tmp_path):
    known = facts.read(folder)
    if precision in ("fp16", "bf16"):
        model = build(folder, precision)
    else:
        columns = group_size(known.tensors) if precision == "int4" else None
        model = quantize.compress(build(folder), precision, group_size=columns)
    foretold = memory.weight_bytes(known, precision)
    assert size_on_disk(model, tmp_path) == pytest.approx(foretold, rel=0.04)
    assert error(logits(model), exact) <= bound
    assert precision == "fp16" or error(logits(model), exact) > 0


def test_calibrated_int4_is_another_int4(folder, exact):
    samples = [list(range(n, n + 40)) for n in range(0, 200, 25)]
    plain = quantize.compress(build(folder), "int4", group_size=128)
    aware = quantize.compress(build(folder), "int4", group_size=128, samples=samples)
    assert error(logits(aware), logits(plain)) > 1e-3
    assert error(logits(aware), exact) < 0.4


def test_a_group_that_does_not_divide_is_refused(folder):
    with pytest.raises(BuildError, match="NNCF could not compress the weights") as caught:
        quantize.compress(build(folder), "int4", group_size=96)
    assert caught.value.faults[0].fix == "use precision int8 or fp16"


def test_nncf_is_quiet_on_stdout(folder, capfd):
    quantize.compress(build(folder), "int8")
    assert capfd.readouterr().out == ""


@pytest.fixture
def tokens(folder):
    return tokenizer.load(folder)


def data(path: Path, **settings) -> CalibrationData:
    return CalibrationData(path, file_digest(path), Calibration(**settings))


def test_samples_of_traffic(tokens, tmp_path):
    write_profile(tmp_path)
    path = tmp_path / "traffic.jsonl"
    requests = [
        {"id": "p", "prompt": "the plain prompt"},
        {"id": "i", "token_ids": [5, 6, 7, 8]},
        {"id": "m", "messages": [{"role": "user", "content": "hello"}]},
        {"id": "short", "prompt": "in"},
    ]
    path.write_text("\n".join(json.dumps(item) for item in requests))
    plain, ids, chat = calibration.samples(data(path), tokens)
    assert tokens.decode(plain) == "the plain prompt"
    assert ids == [5, 6, 7, 8]
    assert tokens.decode(chat) == "<|user|>hello"
    assert max(map(len, calibration.samples(data(path, max_seq_length=8), tokens))) == 8


def test_samples_of_a_text_are_spread_over_it(tokens, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"line number {n:03}" for n in range(100)))
    found = calibration.samples(data(path, data="text.txt", size=4), tokens)
    assert [tokens.decode(ids)[-3:] for ids in found] == ["000", "025", "050", "075"]


def test_too_little_text_is_refused(tokens, tmp_path):
    (tmp_path / "text.txt").write_text("in\n")
    with pytest.raises(ProfileError, match="no sample of 4 tokens or more"):
        calibration.samples(data(tmp_path / "text.txt", data="text.txt"), tokens)
