"""``specbuild completion``: commands, options and file names, completed by click's own scripts."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from specbuild.cli import cli
from specbuild.console import result

SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command("completion")
@click.argument("shell", type=click.Choice([*SHELLS]))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash   echo 'eval "$(specbuild completion bash)"' >> ~/.bashrc
    zsh    echo 'eval "$(specbuild completion zsh)"' >> ~/.zshrc
    fish   specbuild completion fish > ~/.config/fish/completions/specbuild.fish
    """  # noqa: D301 - click's mark for a paragraph that is not rewrapped
    result(SHELLS[shell](cli, {}, "specbuild", "_SPECBUILD_COMPLETE").source())
