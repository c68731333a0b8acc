from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable

import click
import pytest

from specbuild.cli import COMMANDS, main
from specbuild.errors import Fault, ProfileError, SpecbuildError

COMMAND = (sys.executable, "-m", "specbuild")
Act = Callable[[Callable[[], object]], None]


@pytest.fixture
def act(monkeypatch: pytest.MonkeyPatch) -> Act:
    """Makes ``specbuild act`` do what it is given."""

    def install(what: Callable[[], object]) -> None:
        @click.command("act")
        @click.option("--json", "as_json", is_flag=True)
        def command(as_json: bool) -> None:
            what()

        module = types.ModuleType("specbuild.cli.act")
        module.command = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "specbuild.cli.act", module)
        monkeypatch.setitem(COMMANDS, "act", "Do what the test says.")

    return install


def throw(error: BaseException) -> Callable[[], object]:
    def it() -> object:
        raise error

    return it


def test_success(act: Act) -> None:
    act(lambda: None)
    assert main(["act"]) == 0


@pytest.mark.parametrize("kind", SpecbuildError.__subclasses__(), ids=lambda kind: kind.__name__)
def test_each_error_has_its_exit_code_and_says_what_where_and_what_to_do(
    act: Act, kind: type[SpecbuildError], capsys: pytest.CaptureFixture[str]
) -> None:
    act(throw(kind("it broke", where="p.yaml:3", fix="mend it")))
    assert main(["act"]) == kind.exit_code > 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"specbuild: {kind.title}\np.yaml:3: it broke\n    → mend it\n"


def test_with_json_an_error_is_a_document_on_stdout(act: Act, capsys: pytest.CaptureFixture[str]) -> None:
    error = ProfileError([Fault("one", "p.yaml:1"), Fault("two")])
    act(throw(error))
    assert main(["act", "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out) == error.as_json()
    assert "p.yaml:1: one\ntwo" in err


def test_debug_shows_where_an_error_comes_from(act: Act, capsys: pytest.CaptureFixture[str]) -> None:
    act(throw(ProfileError("it broke")))
    assert main(["--debug", "act"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_fault_of_the_program_says_so_and_debug_lets_it_fly(act: Act, capsys: pytest.CaptureFixture[str]) -> None:
    act(throw(ValueError("of its own")))
    assert main(["act"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "specbuild: internal error\nValueError: of its own\n    → run again with --debug and report it\n",
    )
    assert main(["act", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["exit_code"] == 1
    with pytest.raises(ValueError, match="of its own"):
        main(["--debug", "act"])


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "the disk is full"), (errno.EACCES, "no access")],
)
def test_what_the_disk_does_is_no_fault_of_the_program(
    act: Act, number: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    act(throw(OSError(number, os.strerror(number), "/data/engine.bin")))
    assert main(["act"]) == 5
    err = capsys.readouterr().err
    assert words in err
    assert "/data/engine.bin" in err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()], ids=repr)
def test_an_interrupt(act: Act, error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    act(throw(error))
    assert main(["act"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_command_can_choose_its_exit_code(act: Act) -> None:
    act(lambda: click.get_current_context().exit(6))
    assert main(["act"]) == 6


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("tnue", "did you mean 'tune'?"), ("complie", "did you mean 'compile'?"), ("xyzzy", "see --help")],
)
def test_an_unknown_command_has_a_close_match(typed: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([typed]) == 2
    assert f"unknown command '{typed}'; {hint}" in capsys.readouterr().err


def test_a_wrong_option_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "p.yaml", "--json", "--htlm", "x"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["error"], found["exit_code"]) == ("UsageError", 2)
    assert "--htlm" in found["faults"][0]["what"]


def test_a_full_disk_for_real() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [*COMMAND, "completion", "bash"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 5
    assert "the disk is full" in done.stderr


def test_a_reader_that_leaves_ends_it_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, "completion", "bash"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_SPECBUILD_COMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "place", "wanted"),
    [
        ("specbuild co", 1, ["compile", "completion"]),
        ("specbuild report --h", 2, ["--html", "--help"]),
        ("specbuild completion ", 2, ["bash", "zsh", "fish"]),
    ],
)
def test_completion_completes(words: str, place: int, wanted: list[str]) -> None:
    environment = {**os.environ, "_SPECBUILD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, check=False)
    assert [line.removeprefix("plain,") for line in done.stdout.splitlines()] == wanted
