"""Stream an answer from a served model. Copy it: it needs tritonclient[grpc] and no specbuild."""

import queue
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tritonclient.grpc as triton

TYPES = {bool: ("BOOL", np.bool_), int: ("INT32", np.int32), float: ("FP32", np.float32), str: ("BYTES", np.object_)}


def ask(url: str, model: str, prompt: str, **settings: Any) -> Iterator[dict[str, Any]]:
    """Each response as {output: array}; settings are inputs by name, such as max_tokens=64, budget="chat"."""
    inputs = []
    for name, value in {"text_input": prompt, "stream": True, **settings}.items():
        datatype, dtype = TYPES[type(value)]
        tensor = triton.InferInput(name, [1], datatype)
        inputs.append(tensor.set_data_from_numpy(np.array([value], dtype)))
    responses: queue.Queue[Any] = queue.Queue()
    with triton.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: responses.put(error or result))
        client.async_stream_infer(model, inputs)
        done = False
        while not done:
            result = responses.get()
            if isinstance(result, Exception):
                raise result
            outputs = {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}
            done = bool(outputs["finish_reason"][0])
            yield outputs


if __name__ == "__main__":
    for outputs in ask("127.0.0.1:8001", sys.argv[1], sys.argv[2], max_tokens=64):
        print(outputs["text_output"][0].decode(), end="", flush=True)
    print()
