"""What Triton adds: the same requests to one session in this process and to a served one, in turns.

    python benchmarks/overhead.py REPOSITORY [--requests 100] [--max-tokens 48]

Both run the same engines with the same settings; each request goes to one and then to the other, the first one
changing, and the differences are taken request by request. The limits are 3 ms to the first
token and 0.3 ms a token.
"""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specbuild.clock import now_ns
from specbuild.runtime.open import open_session
from specbuild.runtime.session import Chunk, Generate, Session
from specbuild.runtime.triton import TritonSession
from specbuild.triton_repo.check import check
from specbuild.triton_repo.layout import VERSION
from specbuild.triton_repo.models.speculate.settings import Settings, read_policies
from specbuild.triton_repo.server import Ports, running

LIMITS_MS = {"first token": 3.0, "each further token": 0.3}
PROMPT_LENGTHS = (8, 16, 32, 64)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("repository", type=Path)
    arguments.add_argument("--requests", type=int, default=100)
    arguments.add_argument("--max-tokens", type=int, default=48)
    given = arguments.parse_args()
    model = check(given.repository).models[0]
    version = given.repository / model / VERSION
    settings = Settings.read(version)
    requests = make_requests(version, settings, given.requests, given.max_tokens)
    with running(given.repository, ports=Ports.free()) as server:
        inside, outside = open_session(settings.session(version)), TritonSession(server.grpc_url, model)
        try:
            compare(inside, outside, requests)
        finally:
            outside.close()
            inside.close()


def make_requests(version: Path, settings: Settings, count: int, max_tokens: int) -> list[Generate]:
    """Prompts of random tokens, the plan's first policy, no early end."""
    policy = next(iter(read_policies(version).values()))
    random = np.random.default_rng(0)
    lengths = [PROMPT_LENGTHS[index % len(PROMPT_LENGTHS)] for index in range(count)]
    return [
        Generate(
            id=str(index),
            token_ids=tuple(random.integers(0, settings.vocab_size, length).tolist()),
            max_tokens=max_tokens,
            policy=policy,
            ignore_eos=True,
        )
        for index, length in enumerate(lengths)
    ]


def compare(inside: Session, outside: Session, requests: Sequence[Generate]) -> None:
    for session in (inside, outside):
        time_of(session, requests[0])  # warm-up
    rows = []
    for index, request in enumerate(requests):
        order = (inside, outside) if index % 2 else (outside, inside)
        times = {session: time_of(session, request) for session in order}
        rows.append([*times[inside], *times[outside]])
    table = np.array(rows)
    print(f"{len(requests)} requests, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for column, (name, limit) in enumerate(LIMITS_MS.items()):
        one, other = table[:, column], table[:, column + 2]
        added = other - one
        low, high = interval_of_median(added)
        verdict = "kept" if high <= limit else "exceeded" if low > limit else "not decided: the machine is too busy"
        fifth, ninety_fifth = np.percentile(added, [5, 95])
        print(
            f"{name}: in process {np.median(one):.2f} ms, through Triton {np.median(other):.2f} ms\n"
            f"  added {np.median(added):+.2f} ms (95 % interval of the median {low:+.2f} to {high:+.2f},"
            f" 5 % to 95 % of requests {fifth:+.2f} to {ninety_fifth:+.2f}); limit {limit} ms {verdict}"
        )


def interval_of_median(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """95 % bootstrap interval."""
    random = np.random.default_rng(0)
    low, high = np.percentile(np.median(random.choice(values, (2000, len(values))), axis=1), [2.5, 97.5])
    return float(low), float(high)


def time_of(session: Session, request: Generate) -> tuple[float, float]:
    """Milliseconds to the first token, and for each further one."""
    chunks: list[Chunk] = []
    done = threading.Event()

    def on_chunk(chunk: Chunk) -> None:
        chunks.append(chunk)
        if chunk.finish:
            done.set()

    begin = now_ns()
    session.submit(request, on_chunk)
    done.wait()
    assert chunks[-1].finish == "length", chunks[-1]
    tokens = sum(len(chunk.token_ids) for chunk in chunks)
    first, last = chunks[0].t_ns, chunks[-1].t_ns
    return (first - begin) / 1e6, (last - first) / 1e6 / (tokens - len(chunks[0].token_ids))


if __name__ == "__main__":
    main()
