"""``specbuild ask``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from specbuild.cli.options import json_option
from specbuild.console import result_json, say


@click.command("ask")
@click.argument("prompt")
@click.option("--url", default="127.0.0.1:8001", show_default=True, help="HOST:PORT of the server's gRPC endpoint.")
@click.option("--model", help="Model name [default: the only one served].")
@click.option("--budget", help="A budget of the plan [default: its first].")
@click.option("--max-tokens", type=click.IntRange(1), default=256, show_default=True, help="Output limit, tokens.")
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True, help="0 is greedy.")
@json_option
def command(
    prompt: str, url: str, model: str | None, budget: str | None, max_tokens: int, temperature: float, as_json: bool
) -> None:
    """Send PROMPT to the served model; its answer comes on stdout token by token, what it cost on stderr.

    Exit code 9: no server answers, or it refuses the request.
    """
    settings: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "return_perf_metrics": True}
    if budget is not None:
        settings["budget"] = budget
    answer: dict[str, Any] = {"text": ""}
    for outputs in _ask(url, model, prompt, settings):
        text = outputs["text_output"][0].decode()
        answer["text"] += text
        answer.update(_figures(outputs))
        if not as_json:
            sys.stdout.write(text)
            sys.stdout.flush()
    if as_json:
        result_json(answer)
        return
    print(flush=True)
    say(
        f"  {answer['output_tokens']} tokens in {answer['e2e_ms']:.0f} ms, the first after {answer['ttft_ms']:.0f} ms;"
        f" {answer['total_accepted_draft_tokens']} of {answer['total_draft_tokens']} drafted tokens accepted;"
        f" finished by {answer['finish_reason']}"
    )


def _ask(url: str, model: str | None, prompt: str, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What ``triton_repo.ask`` yields, with its errors as ours."""
    from specbuild.errors import ServerError, ToolchainError

    try:
        from tritonclient.utils import InferenceServerException

        from specbuild.triton_repo.ask import ask
    except ImportError as error:
        raise ToolchainError(f"no tritonclient: {error}", fix="pip install 'specbuild[client]'") from error
    try:
        yield from ask(url, _model(url, model), prompt, **settings)
    except InferenceServerException as error:
        unavailable = error.status() == "StatusCode.UNAVAILABLE"
        fix = "start one with specbuild serve, or name its gRPC endpoint with --url" if unavailable else None
        raise ServerError(error.message(), where=url, fix=fix) from error


def _model(url: str, named: str | None) -> str:
    """The model to ask. Asking for the list also shows whether a server is there at all."""
    import tritonclient.grpc as triton

    from specbuild.errors import ServerError

    with triton.InferenceServerClient(url) as client:
        served = [str(model.name) for model in client.get_model_repository_index().models]
    if named in served or (named is None and len(served) == 1):
        return named or served[0]
    what = f"no model {named!r}; " if named else ""
    raise ServerError(f"{what}the server has {', '.join(served) or 'none'}", where=url, fix="choose one with --model")


def _figures(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs that are figures of the whole answer; there on the last response."""
    per_round = ("text_output", "output_ids", "round_tokens", "round_drafted", "round_accepted")
    figures = {name: array[0] for name, array in outputs.items() if name not in per_round}
    return {name: value.decode() if isinstance(value, bytes) else value.item() for name, value in figures.items()}
