"""The command line: parses, calls, prints. Each command is a module that is imported when it is asked for."""

from __future__ import annotations

import errno
import importlib
import sys
import traceback

import click

import specbuild
from specbuild.console import result_json, say
from specbuild.errors import BuildError, SpecbuildError

COMMANDS = {
    "init": "Write a profile, or a whole working example.",
    "check": "Check a profile and its pair before anything is built.",
    "compile": "Build both engines.",
    "bench": "Replay the traffic and measure it.",
    "tune": "Choose the draft length for every budget.",
    "render": "Write the Triton model repository of the plan.",
    "serve": "Run a Triton server on the repository.",
    "ask": "Send one prompt to the served model.",
    "report": "Show the plan and its measurements.",
    "store": "List, verify and shrink the store of engines.",
}


class _Commands(click.Group):
    """Commands by name; help needs no import of any of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"specbuild.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Let errors fly with their traceback.")
@click.version_option(specbuild.__version__, prog_name="specbuild")
def cli(debug: bool) -> None:
    """Build a draft/target pair, find the draft length that keeps your latency budgets, and serve it with Triton.

    Exit codes: 2 profile or input, 3 incompatible pair, 4 toolchain, 5 build, 6 no policy meets a budget,
    7 invalid repository, 8 verification, 9 server, 130 interrupted.
    """


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    debug = "--debug" in arguments
    try:
        cli.main(arguments, prog_name="specbuild", standalone_mode=False)
        return 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        say("interrupted; nothing half-written is left")
        return 130
    except SpecbuildError as error:
        if debug:
            traceback.print_exc()
        return _show(error, as_json="--json" in arguments)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            full = BuildError(f"the disk is full: {error}", fix="free space and run the same command again; it resumes")
            return _show(full, as_json="--json" in arguments)
        say(f"specbuild: internal error: {type(error).__name__}: {error}\n    → run again with --debug and report it")
        return 1


def _show(error: SpecbuildError, *, as_json: bool) -> int:
    if as_json:
        result_json(error.as_json())
    say(f"specbuild: {error.title}\n{error}")
    return error.exit_code
