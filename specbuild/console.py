"""What people see while they wait: narration on stderr, results on stdout."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from specbuild.clock import now_ns
from specbuild.units import NS_PER_S, human_seconds

_CLEAR = "\x1b[K"
"""Erases what an unfinished line has left to the right."""


def say(text: str) -> None:
    """One line of narration on stderr."""
    _print(text + (_CLEAR if _is_terminal() else ""), sys.stderr)


def result(text: str) -> None:
    """A result on stdout; a character that the stream cannot take becomes ``?``."""
    _print(text, sys.stdout)


def result_json(value: Any) -> None:
    """A result on stdout as JSON."""
    unicode = (sys.stdout.encoding or "utf-8").lower() == "utf-8"
    _print(json.dumps(value, indent=2, ensure_ascii=not unicode, allow_nan=False), sys.stdout)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Narrate a step with the seconds it took; a failed one is marked before its error flies on."""
    begun = now_ns()
    done = False
    if _is_terminal():
        room = shutil.get_terminal_size().columns - 1
        _print(f"  … {title}"[:room] + _CLEAR, sys.stderr, end="\r")
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
    if not _is_terminal():
        yield _Tenths(title, total)
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"    {title}", total=total)
        yield lambda done: bar.update(task, completed=done)


class _Tenths:
    """Says how far the work is whenever another tenth is done, and at the end."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.said = title, max(total, 1), 0

    def __call__(self, done: int) -> None:
        if done * 10 // self.total > self.said * 10 // self.total:
            self.said = done
            say(f"    {self.title}: {done}/{self.total}")


def _is_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _print(text: str, stream: TextIO, *, end: str = "\n") -> None:
    encoding = stream.encoding or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), end=end, file=stream, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # else what is buffered fails once more at exit
        if isinstance(error, BrokenPipeError):  # whoever read this, such as head, has enough
            raise SystemExit(128 + signal.SIGPIPE) from None
        raise
