from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbuild.errors import ToolchainError
from specbuild.runtime.blocks import BlockPool
from specbuild.runtime.modelconfig import ModelConfig
from specbuild.runtime.openvino import SCORE_CHUNK, CacheLimits, OpenVinoEngine
from specbuild.runtime.speculate import Feed
from specbuild.runtime.tokenizer import Detokenizer, Tokenizer

TOKENS = np.random.default_rng(0).integers(4, 2000, SCORE_CHUNK + 80)


@pytest.fixture(scope="module")
def engine(tiny_engines):
    return OpenVinoEngine(tiny_engines.draft.folder, numerics="exact", cache=CacheLimits(2048))


@pytest.fixture(scope="module")
def logits(engine):
    return np.concatenate(list(engine.score(TOKENS)))


@pytest.fixture(scope="module")
def tokenizer(tiny_engines):
    return Tokenizer(tiny_engines.target.folder)


def close_to(left, right):
    np.testing.assert_allclose(left, right, atol=2e-4)
    np.testing.assert_array_equal(left.argmax(axis=1), right.argmax(axis=1))


def test_scores_every_position_or_from_one_on(engine, logits):
    assert logits.shape == (len(TOKENS), engine.vocab_size)
    assert logits.dtype == np.float32
    assert not np.array_equal(logits[0], logits[1])
    for start in (0, 10, SCORE_CHUNK, len(TOKENS) - 1):
        close_to(np.concatenate(list(engine.score(TOKENS, start))), logits[start:])


def test_one_token_at_a_time_gives_the_same_logits(engine, logits):
    cache = engine.open(40)
    rows = [engine.forward([Feed(cache, TOKENS[i : i + 1], 1)])[0].copy() for i in range(40)]
    close_to(np.concatenate(rows), logits[:40])
    engine.close(cache)


def test_a_trimmed_cache_forgets(engine, logits):
    cache = engine.open(100)
    engine.forward([Feed(cache, TOKENS[:50], 0)])
    engine.forward([Feed(cache, TOKENS[200:230], 0)])  # tokens that will be rejected
    cache.trim(50)
    (rows,) = engine.forward([Feed(cache, TOKENS[50:60], 10)])
    close_to(rows, logits[50:60])
    assert cache.length == 60
    engine.close(cache)


def test_sequences_of_any_length_share_a_pass(engine, logits):
    parts = [(0, 33, 1), (0, 5, 5), (0, 90, 0), (0, 1, 1), (0, 64, 2)]
    caches = [engine.open(100) for _ in parts]
    results = engine.forward(
        [Feed(cache, TOKENS[first:last], rows) for cache, (first, last, rows) in zip(caches, parts, strict=True)]
    )
    for rows, (_, last, count) in zip(results, parts, strict=True):
        assert len(rows) == count
        close_to(rows, logits[last - count : last])
    second = engine.forward([Feed(caches[2], TOKENS[90:97], 7), Feed(caches[0], TOKENS[33:34], 1)])
    close_to(second[0], logits[90:97])
    close_to(second[1], logits[33:34])
    for cache in caches:
        engine.close(cache)


def test_the_pool_is_bounded(tiny_engines):
    engine = OpenVinoEngine(tiny_engines.draft.folder, numerics="exact", cache=CacheLimits(100))
    assert engine.pool.tokens == 128
    first = engine.open(65)
    assert first is not None
    assert engine.open(65) is None
    engine.close(first)
    assert engine.open(65) is not None
    with pytest.raises(ValueError, match="do not fit"):
        next(engine.score(TOKENS))
    values = ModelConfig.read(tiny_engines.draft.folder).kv_values
    tight = OpenVinoEngine(tiny_engines.draft.folder, numerics="exact", cache=CacheLimits(2048, 64 * values * 4))
    assert tight.pool.tokens == 64


def test_a_feed_beyond_its_cache_is_refused_before_anything_is_written(engine):
    cache = engine.open(32)
    with pytest.raises(ValueError, match="do not fit"):
        engine.forward([Feed(cache, TOKENS[:33], 1)])
    assert cache.length == 0
    engine.close(cache)


def test_fast_numerics_stay_near(tiny_engines, logits):
    fast = OpenVinoEngine(tiny_engines.draft.folder, numerics="fast", cache=CacheLimits(2048))
    scored = np.concatenate(list(fast.score(TOKENS)))
    assert (scored.argmax(axis=1) == logits.argmax(axis=1)).mean() > 0.9


def test_a_folder_without_engine_names_what_is_missing(tmp_path, tiny_engines):
    with pytest.raises(ToolchainError, match=r"openvino_model\.xml"):
        OpenVinoEngine(tmp_path, numerics="fast", cache=CacheLimits(64))
    with pytest.raises(ToolchainError, match=r"openvino_tokenizer\.xml"):
        Tokenizer(tmp_path)
    (tmp_path / "openvino_model.xml").write_text("<net/>")
    with pytest.raises(ToolchainError, match="OpenVINO"):
        OpenVinoEngine(tmp_path, numerics="fast", cache=CacheLimits(64))


def test_model_config(tmp_path):
    config = {
        "vocab_size": 9,
        "max_position_embeddings": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "hidden_size": 32,
        "eos_token_id": 2,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert ModelConfig.read(tmp_path) == ModelConfig(9, 64, 2 * 3 * 4 * 8, (2,))
    path.write_text(json.dumps(config | {"num_key_value_heads": 2, "head_dim": 16}))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [4, 5]}')
    assert ModelConfig.read(tmp_path) == ModelConfig(9, 64, 2 * 3 * 2 * 16, (4, 5))
    path.write_text(json.dumps({"text_config": config}))
    assert ModelConfig.read(tmp_path).vocab_size == 9
    path.write_text("{")
    with pytest.raises(ToolchainError, match="config"):
        ModelConfig.read(tmp_path)


@given(st.lists(st.integers(0, 100), max_size=30))
def test_the_pool_never_hands_out_a_block_twice(capacities):
    pool = BlockPool(10, 16)
    held = []
    for number, capacity in enumerate(capacities):
        cache = pool.open(capacity)
        if cache is None:
            pool.close(held.pop(number % len(held)))
        else:
            assert cache.capacity >= capacity
            held.append(cache)
        blocks = [block for cache in held for block in cache.blocks]
        assert len(blocks) == len(set(blocks)) <= 10
    for cache in held:
        pool.close(cache)
        pool.close(cache)
    assert pool.open(160) is not None


TEXTS = ["def f(x):\n    return x + 1\n", "naïve — 漢字, Ελληνικά", "🎉🧪 done ", "a\n\n\tb  c", "", "\x00\x7f é"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_round_trip(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=40), cuts=st.lists(st.integers(1, 4), min_size=1))
def test_pieces_of_text_join_to_the_whole(tokenizer, text, cuts):
    ids = tokenizer.encode(text, add_special_tokens=False)
    detokenizer = Detokenizer(tokenizer)
    pieces = []
    first, number = 0, 0
    while first < len(ids):
        step = cuts[number % len(cuts)]
        pieces.append(detokenizer.push(ids[first : first + step]))
        first, number = first + step, number + 1
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces) or "\N{REPLACEMENT CHARACTER}" in text
    pieces.append(detokenizer.flush())
    assert "".join(pieces) == tokenizer.decode(ids)


def test_an_unfinished_character_waits_and_is_flushed_as_such(tokenizer):
    ids = tokenizer.encode("ok 🧪", add_special_tokens=False)
    detokenizer = Detokenizer(tokenizer)
    assert "".join(detokenizer.push([token]) for token in ids[:-1]).strip() == "ok"
    assert detokenizer.flush() == "\N{REPLACEMENT CHARACTER}"


def test_a_chat_becomes_a_prompt_or_says_why_not(tokenizer):
    messages = [{"role": "user", "content": "hello there"}]
    if tokenizer.has_chat_template:
        assert "hello there" in tokenizer.apply_chat_template(messages)
    else:
        with pytest.raises(ToolchainError, match="chat template"):
            tokenizer.apply_chat_template(messages)
