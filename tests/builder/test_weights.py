"""Safetensors headers, and numbers in 16 bits."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import write_model

from specbuild.builder.weights import INDEX, Tensor, read_header, to_bf16, weight_files
from specbuild.errors import ProfileError


def write_safetensors(path: Path, header: dict, data: bytes = b"") -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype="F32", shape=(2,), offsets=(0, 8)) -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_tensors_are_mapped_where_they_lie(tmp_path):
    values = np.array([1.5, -2.0], np.float32)
    data = values.tobytes() + to_bf16(values).tobytes() + values.astype(np.float16).tobytes()
    header = {
        "__metadata__": {"format": "pt"},
        "a": entry(),
        "b": entry("BF16", offsets=(8, 12)),
        "c": entry("F16", (1, 2), (12, 16)),
        "none": entry("F16", (0, 3), (16, 16)),
    }
    tensors = read_header(write_safetensors(tmp_path / "m.safetensors", header, data))
    assert [tensors[name].float32().ravel().tolist() for name in "abc"] == [[1.5, -2.0]] * 3
    assert tensors["c"].shape == (1, 2)
    assert tensors["none"].float32().shape == (0, 3)


@pytest.mark.parametrize(
    ("header", "data", "what"),
    [
        ({"a": entry()}, b"\0" * 7, "cut off"),
        ({"a": entry("I8", (8,))}, b"\0" * 8, "stored as I8"),
        ({"a": entry("F8_E4M3", (8,))}, b"\0" * 8, "stored as F8_E4M3"),
        ({"a": entry(shape=(3,))}, b"\0" * 8, "do not fit its shape"),
        ({"a": {"dtype": "F32"}}, b"", "not a safetensors file"),
        ({"a": 3}, b"", "not a safetensors file"),
        ({"a": entry(shape=("x",))}, b"\0" * 8, "not a safetensors file"),
    ],
)
def test_a_damaged_file_says_how(header, data, what, tmp_path):
    with pytest.raises(ProfileError, match=what) as caught:
        read_header(write_safetensors(tmp_path / "m.safetensors", header, data))
    assert caught.value.faults[0].where == str(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "data", [b"", b"\x10", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{", b"\x04\0\0\0\0\0\0\0\xff\xff\xff\xff"]
)
def test_what_is_no_safetensors_file_is_refused(data, tmp_path):
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(ProfileError, match="not a safetensors file"):
        read_header(tmp_path / "m.safetensors")


def test_the_index_names_the_files(tmp_path):
    folder = write_model(tmp_path / "m")
    assert weight_files(folder) == [folder / "model.safetensors"]
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "two.safetensors", "b": "one.safetensors"}}))
    assert [file.name for file in weight_files(folder)] == ["one.safetensors", "two.safetensors"]
    (folder / INDEX).write_text("[]")
    with pytest.raises(ProfileError, match="not a safetensors index"):
        weight_files(folder)


@given(st.integers(0, 0xFFFF))
def test_every_bf16_survives_the_way_through_float32(bits):
    wide = (np.array([bits], np.uint32) << 16).view(np.float32)
    back = to_bf16(wide)
    if np.isnan(wide[0]):
        assert np.isnan((back.astype(np.uint32) << 16).view(np.float32)[0])
    else:
        assert back[0] == bits


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**127), max_value=2.0**127))
def test_bf16_is_the_nearest_ties_to_even(value):
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    low = bits >> 16 << 16
    below, above = (struct.unpack("<f", struct.pack("<I", item))[0] for item in (low, low + 0x10000))
    found = int(to_bf16(np.array([value], np.float32))[0])
    distance = (abs(value - below), abs(above - value))
    expected = low >> 16 if distance[0] < distance[1] else (low >> 16) + 1
    if distance[0] == distance[1]:
        expected = low >> 16 if (low >> 16) % 2 == 0 else (low >> 16) + 1
    assert found == expected


def test_a_nan_stays_one():
    """The bits of this NaN would round to infinity."""
    assert to_bf16(np.array([0x7F800001], np.uint32).view(np.float32))[0] & 0x7F > 0


def test_size_of_a_scalar():
    assert Tensor(Path("x"), "F32", (), 0, 4).size == 1
