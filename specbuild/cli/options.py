"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

profile_argument = click.argument("profile", type=click.Path(path_type=Path, dir_okay=False))
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
store_option = click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="SPECBUILD_STORE",
    help="Folder of the engine store [default: ~/.cache/specbuild].",
)
