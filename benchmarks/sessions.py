"""Which graph serves a pair best: both sessions, off and every draft length, at 1, 4 and 8 requests at once.

``python benchmarks/sessions.py PAIR... [--numerics fast] [--json OUT]``; a PAIR is a folder that holds the engine
folders ``target`` and ``draft``. Greedy requests, closed loop, prompts from a trace. Every setting is measured once per
repeat, all settings in turn, so that a slow phase of the machine hits all alike; a ratio is taken within its repeat and
shown as median (lowest to highest). The direct rows drive OpenVINO GenAI without a session, with the same settings.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino_genai.py_openvino_genai import GenerationStatus

import specbuild.profiles
from specbuild.runtime import fused
from specbuild.runtime.fused import FusedSession
from specbuild.runtime.open import SessionSpec, open_session
from specbuild.runtime.policy import fixed
from specbuild.runtime.session import Chunk, Generate, Session
from specbuild.runtime.tokenizer import Tokenizer
from specbuild.trace import load

TRACE = Path(specbuild.profiles.__file__).parent / "traffic" / "mixed.jsonl"
GRAPHS = ("fused", "orchestrated")


@dataclass(frozen=True)
class Setting:
    """One row of the result."""

    how: str
    """``fused``, ``orchestrated``, or ``direct``: GenAI without a session."""
    at_once: int
    draft_len: int


@dataclass(frozen=True)
class Result:
    """One run."""

    tokens_per_s: float
    cpu_ms_per_token: float
    """Of all threads: steadier than the clock on a machine that others use, too."""
    tokens_per_round: float
    """Mean tokens of a chunk, first ones included."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", type=Path, metavar="PAIR")
    parser.add_argument("--numerics", choices=("exact", "fast"), default="fast")
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--draft-len", type=int, nargs="+", default=[0, 1, 2, 3, 4, 5, 6, 7, 8])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--longest-prompt", type=int, default=300)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = {str(pair): measure(pair, args) for pair in args.pairs}
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


def measure(pair: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure and print one pair."""
    prompts = read_prompts(pair, args)
    specs = [
        SessionSpec.from_folders(pair / "target", pair / "draft", graph=graph, numerics=args.numerics)
        for graph in GRAPHS
    ]
    settings = [Setting(how, n, k) for n in args.at_once for how in GRAPHS for k in args.draft_len]
    settings += [Setting("direct", n, k) for n in args.at_once for k in (0, 4) if k in args.draft_len]
    results: dict[Setting, list[Result]] = {setting: [] for setting in settings}
    with closing(FusedSession(specs[0])) as fused_session, closing(open_session(specs[1])) as orchestrated_session:
        direct = Direct(fused_session)
        sessions = {"fused": fused_session, "orchestrated": orchestrated_session}
        for repeat in range(args.repeats + 1):
            for setting in settings:
                count = max(4, setting.at_once)
                chosen = [prompts[(repeat * count + index) % len(prompts)] for index in range(count)]
                requests = [
                    Generate(str(number), prompt, args.max_tokens, fixed(setting.draft_len), ignore_eos=True)
                    for number, prompt in enumerate(chosen)
                ]
                session = sessions.get(setting.how)
                result = run(session, requests, setting) if session else direct.run(requests, setting)
                if repeat:  # the first is to warm up
                    results[setting].append(result)
            print(f"{pair} {args.numerics}: repeat {repeat} of {args.repeats}", file=sys.stderr, flush=True)
    show(f"{pair} {args.numerics}", args, results)
    return [asdict(setting) | {"runs": [asdict(one) for one in runs]} for setting, runs in results.items()]


def read_prompts(pair: Path, args: argparse.Namespace) -> list[tuple[int, ...]]:
    """The trace's plain prompts as token ids."""
    tokenizer = Tokenizer(pair / "target")
    texts = [request.prompt for request in load(args.trace).requests if request.prompt]
    encoded = [tuple(tokenizer.encode(text)) for text in texts]
    return [ids for ids in encoded if len(ids) <= args.longest_prompt]


class Stopwatch:
    """Wall and CPU time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def result(self, sizes: Sequence[int]) -> Result:
        """For chunks of these sizes."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return Result(sum(sizes) / wall, 1000 * cpu / sum(sizes), statistics.fmean(sizes))


def run(session: Session, requests: Sequence[Generate], setting: Setting) -> Result:
    """All requests through a session, ``at_once`` at a time, the next one as soon as one ends."""
    room = threading.Semaphore(setting.at_once)
    chunks: list[Chunk] = []

    def take(chunk: Chunk) -> None:
        chunks.append(chunk)
        if chunk.finish:
            room.release()

    began = Stopwatch()
    for request in requests:
        room.acquire()
        session.submit(request, take)
    for _ in range(setting.at_once):
        room.acquire()
    assert all(chunk.finish in (None, "length") for chunk in chunks)
    return began.result([len(chunk.token_ids) for chunk in chunks])


class Direct:
    """OpenVINO GenAI called as its samples do, on the very pipelines of a fused session while that is idle.

    Pipelines of their own would not do: two copies of one model differ by more than 10% with where their weights lie.
    """

    def __init__(self, session: FusedSession) -> None:
        rounds = session._worker._rounds  # noqa: SLF001 - nobody else may have them
        self._alone = rounds._alone.load()  # noqa: SLF001
        self._speculative = rounds._speculative.load()  # noqa: SLF001
        self._ids = itertools.count(1_000_000)

    def run(self, requests: Sequence[Generate], setting: Setting) -> Result:
        """The same closed loop as ``run``, by hand."""
        pipeline = self._speculative if setting.draft_len else self._alone
        waiting, active, sizes = list(requests), [], []
        began = Stopwatch()
        while waiting or active:
            while waiting and len(active) < setting.at_once:
                request = waiting.pop(0)
                config = fused.generation_config(request, setting.draft_len, ())
                prompt = openvino.Tensor(np.array([request.token_ids], np.int64))
                active.append(pipeline.add_request(next(self._ids), prompt, config))
            pipeline.step()
            for handle in active:
                while handle.can_read():
                    sizes += [len(output.generated_ids) for output in handle.read().values()]
            active = [handle for handle in active if handle.get_status() == GenerationStatus.RUNNING]
        return began.result(sizes)


def show(title: str, args: argparse.Namespace, results: dict[Setting, list[Result]]) -> None:
    """One table per number of requests at once."""

    def median(setting: Setting, field: str) -> float:
        return statistics.median(getattr(one, field) for one in results[setting])

    def ratio(top: Setting, bottom: Setting, field: str = "tokens_per_s") -> str:
        pairs = zip(results[top], results[bottom], strict=True)
        ratios = sorted(getattr(one, field) / getattr(other, field) for one, other in pairs)
        return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"

    for n in args.at_once:
        print(f"\n{title}, {n} at once\n")
        print("| draft_len | a round | fused tok/s | over off | orchestrated tok/s | over off | over fused | CPU ms |")
        print("|---|---|---|---|---|---|---|---|")
        for k in args.draft_len:
            first, second = Setting("fused", n, k), Setting("orchestrated", n, k)
            cells = [f"{k or 'off'}", f"{median(second, 'tokens_per_round'):.2f}"]
            for one in (first, second):
                cells += [f"{median(one, 'tokens_per_s'):.0f}", ratio(one, Setting(one.how, n, 0))]
            cells.append(ratio(second, first))
            cells.append(" / ".join(f"{median(one, 'cpu_ms_per_token'):.1f}" for one in (first, second)))
            print("|", " | ".join(cells), "|")
        for k in (0, 4):
            session, direct = Setting("fused", n, k), Setting("direct", n, k)
            if direct in results:
                words = f"tokens/s {ratio(session, direct)}, CPU {ratio(session, direct, 'cpu_ms_per_token')}"
                print(f"\nfused session over GenAI called directly, {f'draft_len {k}' if k else 'off'}: {words}")


if __name__ == "__main__":
    main()
