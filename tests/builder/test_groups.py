"""Group sizes of int4 weights, and sizes of engines before they are built."""

import pytest

from specbuild.builder.groups import becomes_int4, group_size
from specbuild.builder.stacks import llama

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(("hidden", "expected"), [(2048, 128), (576, 64), (96, 32), (80, None)])
def test_the_largest_that_divides_every_width(hidden, expected):
    config = {**SMOLLM2, "hidden_size": hidden, "head_dim": hidden // 8, "num_attention_heads": 8}
    assert group_size(llama.spec(config).weights()) == expected


def test_tables_and_vectors_do_not_count():
    assert group_size({"model.embed_tokens.weight": (100, 7), "a.weight": (3, 256), "norm.weight": (5,)}) == 128
    assert not becomes_int4("lm_head.weight", (100, 64))
