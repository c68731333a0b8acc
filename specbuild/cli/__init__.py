"""The command line: parses, calls, prints. Each command is a module that is imported when it is asked for."""

from __future__ import annotations

import difflib
import errno
import importlib
import sys
import traceback
from dataclasses import asdict

import click
from click.shell_completion import CompletionItem

import specbuild
from specbuild.console import result_json, say
from specbuild.errors import BuildError, Fault, SpecbuildError

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
    "completion": "Print the completion script of a shell.",
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
            ctx.fail(f"unknown command {name!r}; " + (f"did you mean {close[0]!r}?" if close else "see --help"))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        named = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Let errors fly with their traceback.")
@click.version_option(specbuild.__version__, prog_name="specbuild")
def cli(debug: bool) -> None:
    """Build a draft/target pair, find the draft length that keeps your latency budgets, and serve it with Triton.

    Exit codes: 1 internal error, 2 profile or input, 3 incompatible pair, 4 toolchain, 5 build, 6 no policy meets a
    budget, 7 invalid repository, 8 verification, 9 server, 130 interrupted.
    """


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    debug, as_json = "--debug" in arguments, "--json" in arguments
    try:
        code = cli.main(arguments, prog_name="specbuild", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        if as_json:
            fault = Fault(error.format_message())
            result_json({"error": "UsageError", "exit_code": error.exit_code, "faults": [asdict(fault)]})
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        say("interrupted; nothing half-written is left")
        return 130
    except SpecbuildError as error:
        if debug:
            traceback.print_exc()
        return _show(error, as_json=as_json)
    except Exception as error:
        if debug:
            raise
        return _show(_explained(error), as_json=as_json)


def _explained(error: Exception) -> SpecbuildError:
    """The disk's errors, which any step can meet, in our words; everything else is a fault of this program."""
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return BuildError(f"the disk is full: {error}", fix="free space and run the same command again; it resumes")
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return BuildError(f"no access: {error}", fix="check the permissions of the file and its folder")
    return SpecbuildError(f"{type(error).__name__}: {error}", fix="run again with --debug and report it")


def _show(error: SpecbuildError, *, as_json: bool) -> int:
    if as_json:
        result_json(error.as_json())
    say(f"specbuild: {error.title}\n{error}")
    return error.exit_code
