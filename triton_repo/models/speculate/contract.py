"""The served model's tensors: the one list that the config, the model and its clients agree on.

Names follow the models that ship with TensorRT-LLM where those have one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tensor:
    """A tensor by Triton's names; ``dims`` without a batch dimension, -1 for any size."""

    name: str
    data_type: str
    dims: tuple[int, ...] = (1,)
    meaning: str = ""


INPUTS = (
    Tensor("text_input", "STRING", meaning="the prompt; exactly one of text_input, input_ids, messages"),
    Tensor("input_ids", "INT32", (-1,), "the prompt as token ids"),
    Tensor("messages", "STRING", meaning='a chat as JSON: [{"role": "user", "content": "..."}]'),
    Tensor("max_tokens", "INT32", meaning="output limit, tokens; default 256 or what the context leaves"),
    Tensor("temperature", "FP32", meaning="0 (default) is greedy"),
    Tensor("top_p", "FP32", meaning="in (0, 1]; default 1"),
    Tensor("top_k", "INT32", meaning="0 (default): no limit"),
    Tensor("seed", "UINT64", meaning="fixes a sampled output"),
    Tensor("random_seed", "UINT64", meaning="another name of seed"),
    Tensor("ignore_eos", "BOOL", meaning="go on behind an end token, up to max_tokens"),
    Tensor("stream", "BOOL", meaning="one response for each round instead of one in all; default false"),
    Tensor("exclude_input_in_output", "BOOL", meaning="the prompt is never repeated: true, or leave it out"),
    Tensor("budget", "STRING", meaning="a budget of the plan by name; default the plan's first"),
    Tensor("draft_len", "INT32", meaning="tokens drafted a round instead of the plan's choice; 0 is off"),
    Tensor("num_draft_tokens", "INT32", meaning="another name of draft_len"),
    Tensor("return_perf_metrics", "BOOL", meaning="adds the outputs behind finish_reason"),
)

OUTPUTS = (
    Tensor("text_output", "STRING", meaning="text since the last response; joined they are the whole output"),
    Tensor("output_ids", "INT32", (-1,), "tokens since the last response"),
    Tensor("finish_reason", "STRING", meaning="last response: stop, length or timeout; before that empty"),
    Tensor("round_tokens", "INT32", (-1,), "tokens that each round since the last response gave"),
    Tensor("round_drafted", "INT32", (-1,), "tokens drafted in each of them"),
    Tensor("round_accepted", "INT32", (-1,), "tokens accepted in each of them"),
    Tensor("total_draft_tokens", "INT32", meaning="last response: tokens drafted in all"),
    Tensor("total_accepted_draft_tokens", "INT32", meaning="last response: tokens accepted in all"),
    Tensor("acceptance_rate", "FP32", meaning="last response: accepted / drafted; 0 where nothing was drafted"),
    Tensor("rounds", "INT32", meaning="last response: draft-verify-accept rounds"),
    Tensor("input_tokens", "INT32", meaning="last response: prompt tokens"),
    Tensor("output_tokens", "INT32", meaning="last response: tokens of the output"),
    Tensor("ttft_ms", "FP32", meaning="last response: arrival at the model to first token, ms"),
    Tensor("e2e_ms", "FP32", meaning="last response: arrival at the model to last token, ms"),
)

DTYPES = {tensor.name: tensor.data_type for tensor in (*INPUTS, *OUTPUTS)}
