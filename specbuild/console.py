"""What people see while they wait: narration on stderr, results on stdout."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from specbuild.clock import now_ns
from specbuild.units import NS_PER_S, human_seconds


def say(text: str) -> None:
    """One line of narration on stderr."""
    print(text, file=sys.stderr, flush=True)


def result(text: str) -> None:
    """A result on stdout."""
    print(text, flush=True)


def result_json(value: Any) -> None:
    """A result on stdout as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Narrate a step with the seconds it took; a failed one is marked before its error flies on."""
    begun = now_ns()
    done = False
    if sys.stderr.isatty():
        print(f"  … {title}", end="\r", file=sys.stderr, flush=True)
    try:
        yield
        done = True
    finally:
        took = human_seconds((now_ns() - begun) / NS_PER_S)
        say(f"  {'✓' if done else '✗'} {title} ({took})")


class Progress(Protocol):
    """Counts work that is done."""

    def __call__(self, done: int) -> None:
        """``done`` units are finished so far."""


@contextmanager
def progress(title: str, total: int) -> Iterator[Progress]:
    """A progress bar on a terminal, a line every tenth elsewhere."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.update(task, completed=done)
        return
    last = 0

    def line(done: int) -> None:
        nonlocal last
        if done * 10 // max(total, 1) > last * 10 // max(total, 1) or done == total > last:
            say(f"    {title}: {done}/{total}")
            last = done

    yield line
