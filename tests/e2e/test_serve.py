"""A real Triton server on the tiny pair: what clients of either graph get."""

from __future__ import annotations

import itertools
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from paper import plan_of
from tritonclient.utils import InferenceServerException

from specbuild.cli import main
from specbuild.engine import Engines
from specbuild.plan import PolicySpec
from specbuild.profile import Profile
from specbuild.runtime.open import open_session
from specbuild.runtime.policy import OFF, fixed
from specbuild.runtime.session import Chunk, Generate, Sampling, Session
from specbuild.runtime.triton import TritonSession
from specbuild.triton_repo import render
from specbuild.triton_repo.ask import ask
from specbuild.triton_repo.guard import SHM
from specbuild.triton_repo.models.speculate.settings import Settings
from specbuild.triton_repo.server import Ports, Server, running

MODEL = "tiny-served"
PROMPTS = ("def add(a, b):\n    ", "import os\n\nclass", "The king said", "for i in range(10):\n" * 8)
TOKENS = 24


@dataclass(frozen=True)
class Served:
    """A running server and what it serves."""

    server: Server
    version: Path

    @property
    def graph(self) -> str:
        return Settings.read(self.version).graph

    def ask(self, prompt: str, **settings: Any) -> list[dict[str, Any]]:
        return list(ask(self.server.grpc_url, MODEL, prompt, **{"max_tokens": TOKENS, **settings}))

    def post(self, path: str, body: object) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.server.http_url}/v2/models/{MODEL}/{path}", data=data)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - http of our own
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def counters(self) -> dict[str, float]:
        """Family or family[position] → sum over bands, and ``<band>`` → drafts."""
        with urllib.request.urlopen(self.server.metrics_url, timeout=10) as page:  # noqa: S310 - http of our own
            lines = page.read().decode().splitlines()
        sums: dict[str, float] = {}
        for line in lines:
            if line.startswith("specbuild_spec_decode_"):
                name, _, rest = line.partition("{")
                labels = dict(pair.split("=") for pair in rest.partition("}")[0].split(","))
                assert (labels["pair"], labels["model"], labels["version"]) == ('"tiny"', f'"{MODEL}"', '"1"')
                value = float(rest.rpartition(" ")[2])
                name = name.removeprefix("specbuild_spec_decode_")
                position = f"[{json.loads(labels['position'])}]" if "position" in labels else ""
                sums[name + position] = sums.get(name + position, 0) + value
                if name == "num_drafts_total":
                    sums[json.loads(labels["prompt_band"])] = value
        return sums

    def counters_once_still(self) -> dict[str, float]:
        """The counters when they have stopped to move; they lag behind answers by some 20 ms."""
        page = self.counters()
        while True:
            time.sleep(0.1)
            last, page = page, self.counters()
            if page == last:
                return page


@pytest.fixture(scope="module", params=["orchestrated", "fused"])
def served(
    request: pytest.FixtureRequest,
    tiny_engines: Engines,
    tiny_profile: Profile,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    serving = tiny_profile.serving.model_copy(update={"model_name": MODEL})
    limits = tiny_profile.limits.model_copy(update={"max_batch_size": 4, "max_input_len": 400, "max_seq_len": 512})
    profile = tiny_profile.model_copy(
        update={"name": "tiny", "serving": serving, "limits": limits, "numerics": "exact"}
    )
    plan = plan_of(tiny_engines, {"chat": PolicySpec.fixed(4), "batch": PolicySpec.fixed(0)}, graph=request.param)
    folder = render(profile, tiny_engines, plan, out=tmp_path_factory.mktemp(request.param) / "repository")
    with running(folder, ports=Ports.free()) as server:
        yield Served(server, folder / MODEL / "1")
    assert server.guard.returncode == 0, server.log.read_text()[-2000:]
    assert not list(SHM.glob(f"{server.shm_prefix}*"))
    assert not _processes_with(server.shm_prefix)


@pytest.fixture(scope="module")
def alone(served: Served) -> Iterator[Session]:
    """The target alone, in this process."""
    spec = Settings.read(served.version).session(served.version)
    session = open_session(type(spec)(**{**vars(spec), "draft": None, "speculative": False}))
    yield session
    session.close()


def _processes_with(argument: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_text()
        except OSError:
            continue
        if argument in command:
            found.append(command)
    return found


def _run(session: Session, request: Generate) -> list[Chunk]:
    chunks: list[Chunk] = []
    done = threading.Event()

    def on_chunk(chunk: Chunk) -> None:
        chunks.append(chunk)
        if chunk.finish:
            done.set()

    session.submit(request, on_chunk)
    assert done.wait(30)
    return chunks


def _text(responses: list[dict[str, Any]]) -> str:
    return b"".join(outputs["text_output"][0] for outputs in responses).decode()


def _ids(responses: list[dict[str, Any]]) -> list[int]:
    return [int(token) for outputs in responses for token in outputs["output_ids"]]


def _events(body: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in body.split("\n\n") if line]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_streams_and_single_answers_are_one_text(served: Served, prompt: str) -> None:
    streamed = served.ask(prompt, ignore_eos=True)
    (whole,) = served.ask(prompt, ignore_eos=True, stream=False)
    assert len(streamed) > 1
    assert _text(streamed) == _text([whole])
    assert _ids(streamed) == _ids([whole])
    assert [outputs["finish_reason"][0] for outputs in streamed] == [b""] * (len(streamed) - 1) + [b"length"]
    body = {"text_input": prompt, "max_tokens": TOKENS, "ignore_eos": True}
    status, over_http = served.post("generate_stream", {**body, "stream": True})
    assert status == 200
    assert "".join(event["text_output"] for event in _events(over_http)) == _text([whole])
    status, over_http = served.post("generate", body)
    assert (status, json.loads(over_http)["text_output"]) == (200, _text([whole]))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_answers_are_those_of_the_target_alone(served: Served, alone: Session, prompt: str) -> None:
    from specbuild.runtime.tokenizer import Tokenizer

    ids = tuple(Tokenizer(served.version / "engines" / "target").encode(prompt))
    expected = [token for chunk in _run(alone, Generate("a", ids, TOKENS, OFF)) for token in chunk.token_ids]
    for settings in ({}, {"budget": "batch"}, {"draft_len": 1}, {"num_draft_tokens": 3}, {"draft_len": 0}):
        assert _ids(served.ask(prompt, **settings)) == expected, settings


def test_figures_and_counters_agree(served: Served) -> None:
    before = served.counters_once_still()
    responses = served.ask(PROMPTS[0], return_perf_metrics=True, ignore_eos=True)
    responses += served.ask(PROMPTS[3], return_perf_metrics=True, ignore_eos=True)
    after = served.counters_once_still()
    moved = {name: after[name] - before[name] for name in after}
    drafted = np.concatenate([outputs["round_drafted"] for outputs in responses])
    accepted = np.concatenate([outputs["round_accepted"] for outputs in responses])
    assert moved["num_drafts_total"] == np.count_nonzero(drafted) > 0
    assert moved["num_draft_tokens_total"] == drafted.sum()
    assert moved["num_accepted_tokens_total"] == accepted.sum() > 0
    for position in range(4):
        assert moved[f"num_accepted_tokens_per_pos_total[{position}]"] == np.count_nonzero(accepted > position)
    assert moved["0-20"] > 0
    assert moved["0-20"] + moved["21-200"] == moved["num_drafts_total"]
    last = [outputs for outputs in responses if "rounds" in outputs]
    assert len(last) == 2
    assert sum(int(outputs["total_draft_tokens"][0]) for outputs in last) == drafted.sum()
    assert sum(int(outputs["total_accepted_draft_tokens"][0]) for outputs in last) == accepted.sum()
    for outputs in last:
        assert outputs["output_tokens"][0] == TOKENS
        assert 0 < outputs["ttft_ms"][0] < outputs["e2e_ms"][0]


def test_a_sampled_answer_is_never_approximate(served: Served) -> None:
    settings = {"temperature": 1.0, "return_perf_metrics": True}
    *_, last = served.ask(PROMPTS[1], **settings)
    assert (last["total_draft_tokens"][0] > 0) == (served.graph == "orchestrated")


def test_a_seed_fixes_a_sampled_answer(served: Served) -> None:
    session = TritonSession(served.server.grpc_url, MODEL)
    try:
        sampled = [
            [
                token
                for chunk in _run(session, Generate("s", (5, 6, 7), 20, fixed(2), Sampling(1.0, seed=seed)))
                for token in chunk.token_ids
            ]
            for seed in (7, 7, 8)
        ]
    finally:
        session.close()
    assert sampled[0] == sampled[1] != sampled[2]


def test_many_at_once_get_their_own_answers(served: Served) -> None:
    expected = {prompt: _ids(served.ask(prompt)) for prompt in PROMPTS}
    answers: list[tuple[str, list[int]]] = []
    threads = [
        threading.Thread(target=lambda prompt=prompt: answers.append((prompt, _ids(served.ask(prompt)))))
        for prompt in PROMPTS * 3
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == len(threads)
    for prompt, ids in answers:
        assert ids == expected[prompt]


def test_a_cancelled_request_stops_working(served: Served) -> None:
    session = TritonSession(served.server.grpc_url, MODEL)
    chunks: list[Chunk] = []
    begun, done = threading.Event(), threading.Event()

    def on_chunk(chunk: Chunk) -> None:
        chunks.append(chunk)
        (done if chunk.finish else begun).set()

    handle = session.submit(Generate("c", (5, 6, 7), 500, fixed(1), ignore_eos=True), on_chunk)
    assert begun.wait(10)
    handle.cancel()
    assert done.wait(10)
    session.close()
    assert chunks[-1].finish == "cancelled"
    assert sum(len(chunk.token_ids) for chunk in chunks) < 400
    assert served.counters_once_still()["num_drafts_total"] > 0  # it does come to rest
    assert len(_ids(served.ask(PROMPTS[0], ignore_eos=True))) == TOKENS


def test_a_timed_out_request_says_so(served: Served) -> None:
    session = TritonSession(served.server.grpc_url, MODEL)
    request = Generate("t", (5, 6, 7), 500, OFF, ignore_eos=True, timeout_ns=50_000_000)
    chunks = _run(session, request)
    session.close()
    assert chunks[-1].finish == "timeout"
    assert sum(len(chunk.token_ids) for chunk in chunks) < 500


def test_the_session_gives_the_rounds_of_the_engine(served: Served) -> None:
    session = TritonSession(served.server.grpc_url, MODEL)
    chunks = _run(session, Generate("r", tuple(range(5, 45)), TOKENS, fixed(3), ignore_eos=True))
    session.close()
    assert chunks[-1].finish == "length"
    assert sum(len(chunk.token_ids) for chunk in chunks) == TOKENS
    assert [chunk.drafted for chunk in chunks][:2] == [0, 3]
    assert all(len(chunk.token_ids) == chunk.accepted + 1 for chunk in chunks)
    assert all(a.t_ns <= b.t_ns for a, b in itertools.pairwise(chunks))


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ({}, 400, "exactly one of text_input, input_ids, messages"),
        ({"max_tokens": 4}, 400, "exactly one of text_input, input_ids, messages"),
        ({"text_input": "a", "max_tokens": 99_999_999_999}, 400, "max_tokens: 1215752191 is not 1 to"),
        ({"text_input": "a", "budget": "turbo"}, 400, "'turbo' is not in the plan, which has chat, batch"),
        ({"text_input": "a", "draft_len": 99}, 400, "draft_len: 99 is not 0 to"),
        ({"text_input": "a", "temperature": -1}, 400, "temperature: -1.0 is not 0 to 100"),
        ({"text_input": ["a", "b"]}, 400, "can not convert input 'text_input'"),
        ({"text_input": "word " * 2000}, 400, "at most 400 are allowed"),
        ({"input_ids": [1, 10**9]}, 400, "input_ids: 1000000000 is not a token id"),
        ({"messages": "[]"}, 400, "messages: a JSON list"),
        ({"text_input": 5}, 500, "Unable to parse"),
        (b"{", 500, "failed to parse the request JSON"),
        (b'{"text_input": "a", "top_p": NaN}', 400, "top_p: nan is not in (0, 1]"),
    ],
)
def test_bad_requests_over_http(served: Served, body: object, status: int, why: str) -> None:
    for path in ("generate", "generate_stream"):
        answered, text = served.post(path, body)
        assert (answered, why in text) == (status, True), text


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"budget": "turbo"}, "INVALID_ARGUMENT: budget: 'turbo' is not in the plan"),
        ({"temperature": float("nan")}, "INVALID_ARGUMENT: temperature: nan"),
        ({"max_tokens": 0}, "INVALID_ARGUMENT: max_tokens: 0 is not 1 to"),
        ({"temperature": 1}, "expects 'FP32'"),
        ({"speed": 9}, "unexpected inference input 'speed'"),
    ],
)
def test_bad_requests_over_grpc(served: Served, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        served.ask("a", **settings)
    assert why in str(caught.value)


def test_the_server_lives_on(served: Served) -> None:
    with triton.InferenceServerClient(served.server.grpc_url) as client:
        assert client.is_model_ready(MODEL)
        assert client.get_model_config(MODEL).config.model_transaction_policy.decoupled
    assert len(_ids(served.ask(PROMPTS[2], ignore_eos=True))) == TOKENS


def test_the_command_asks(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ask", PROMPTS[0], "--url", served.server.grpc_url, "--max-tokens", str(TOKENS)]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert shown.out == _text(served.ask(PROMPTS[0])) + "\n"
    assert "drafted tokens accepted" in shown.err
    assert main([*arguments, "--json", "--budget", "batch"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["text"] + "\n", answer["total_draft_tokens"]) == (shown.out, 0)
    assert main([*arguments, "--budget", "turbo"]) == 9
    assert "'turbo' is not in the plan, which has chat, batch" in capsys.readouterr().err
