"""Print docs/cli.md: what every command says of itself with --help."""

from __future__ import annotations

from collections.abc import Iterator

import click

from specbuild.cli import cli

HEAD = """# Commands

This page is what `specbuild COMMAND --help` prints (`make docs` writes it).
"""


def page() -> str:
    """The whole page, the same on every terminal."""
    top = click.Context(cli, info_name="specbuild", **cli.context_settings, **_WIDTH)
    return "\n".join([HEAD, *_sections(top, 2)])


_WIDTH = {"terminal_width": 100, "max_content_width": 100}


def _sections(context: click.Context, level: int) -> Iterator[str]:
    """The section of a command, then those of its subcommands."""
    yield f"{'#' * level} {context.command_path}\n\n```text\n{context.command.get_help(context)}\n```\n"
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command and not command.hidden:
                yield from _sections(click.Context(command, info_name=name, parent=context, **_WIDTH), level + 1)


if __name__ == "__main__":
    print(page(), end="")
