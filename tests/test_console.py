from __future__ import annotations

import io
import json
import re
import sys

import pytest

from specbuild import console


class Stream(io.TextIOWrapper):
    """A stream of a given encoding that may be a terminal."""

    def __init__(self, encoding: str = "utf-8", *, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(), encoding)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    @property
    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode(self.encoding)


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """To be called within a test: between its phases pytest puts streams of its own in place."""
    stream = Stream(terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    return stream


def test_results_and_narration_go_apart(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("so far so good")
    console.result("42")
    console.result_json({"ü": [1, None]})
    out, err = capsys.readouterr()
    assert err == "so far so good\n"
    assert out.startswith("42\n")
    assert json.loads(out.removeprefix("42\n")) == {"ü": [1, None]}
    assert "ü" in out


def test_a_poor_stream_loses_characters_and_not_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream("ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    console.result("≤ 5 ms")
    console.result_json({"limit": "≤ 5"})
    plain, document = stream.text.split("\n", 1)
    assert plain == "? 5 ms"
    assert json.loads(document) == {"limit": "≤ 5"}


def test_a_result_is_json_or_an_error() -> None:
    with pytest.raises(ValueError, match="JSON"):
        console.result_json(float("nan"))


def test_a_step_ends_with_its_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    with console.step("compile the draft"):
        console.say("    a word between")
    assert re.fullmatch(r"    a word between\n  ✓ compile the draft \(\d+ ms\)\n", capsys.readouterr().err)


def test_a_failed_step_is_marked_and_its_error_flies_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), console.step("compile the draft"):
        raise KeyError("x")
    assert re.fullmatch(r"  ✗ compile the draft \(\d+ ms\)\n", capsys.readouterr().err)


def test_a_terminal_shows_the_step_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with console.step("compile " + "x" * 60):
        begun = terminal.text
        console.say("short")
    assert begun.startswith("  … compile x")
    assert begun.endswith("\x1b[K\r")
    assert len(begun.removesuffix("\x1b[K\r")) < 40
    assert terminal.text.removeprefix(begun).startswith("short\x1b[K\n  ✓ compile")


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    with console.step("compile"), console.progress("replay", 2) as done:
        done(1)
    assert "\x1b" not in terminal.text
    assert "    replay: 1/2\n" in terminal.text


@pytest.mark.parametrize(
    ("total", "counts", "said"),
    [
        (100, range(101), [f"{n}/100" for n in range(10, 101, 10)]),
        (3, range(4), ["1/3", "2/3", "3/3"]),
        (25, [5, 6, 25, 25], ["5/25", "25/25"]),
        (0, [0], []),
    ],
)
def test_progress_says_every_tenth_once(
    capsys: pytest.CaptureFixture[str], total: int, counts: list[int], said: list[str]
) -> None:
    with console.progress("replay", total) as done:
        for count in counts:
            done(count)
    assert capsys.readouterr().err.splitlines() == [f"    replay: {count}" for count in said]


def test_progress_on_a_terminal_is_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with console.progress("replay", 4) as done:
        done(2)
    assert "replay" in terminal.text
    assert "50%" in terminal.text
    assert terminal.text.rstrip("\r").endswith("\x1b[2K")
