"""``specbuild init``."""

from __future__ import annotations

from pathlib import Path

import click

from specbuild.cli.options import json_option
from specbuild.console import result, result_json


@click.command("init")
@click.argument("names", nargs=-1, metavar="TARGET DRAFT | DIR")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("profile.yaml"),
    show_default=True,
    help="The profile to write.",
)
@click.option("--traffic", default="traffic.jsonl", show_default=True, help="The trace that the profile names.")
@click.option("--force", is_flag=True, help="Write over a profile that is there.")
@click.option("--example", metavar="NAME", help="Write a whole working example into DIR instead.")
@click.option("--list-examples", is_flag=True, help="List the examples and stop.")
@json_option
def command(
    names: tuple[str, ...],
    output: Path,
    traffic: str,
    force: bool,
    example: str | None,
    list_examples: bool,
    as_json: bool,
) -> None:
    """Write a commented profile for a TARGET and a DRAFT, each a model folder or a hub id.

    With --example NAME, DIR is filled with models, traffic and a profile that run as they are.
    """
    if list_examples:
        _list(as_json)
        return
    if example is not None:
        if len(names) != 1:
            raise click.UsageError(f"--example {example} takes one DIR")
        from specbuild.builder.examples import write_example

        _written(write_example(example, Path(names[0])), as_json)
        return
    if len(names) != 2:
        raise click.UsageError("give a TARGET and a DRAFT, or --example NAME DIR")
    from specbuild.builder.template import write_profile

    _written(write_profile(names[0], names[1], output, traffic=traffic, force=force), as_json)


def _list(as_json: bool) -> None:
    from specbuild.builder.examples import EXAMPLES

    if as_json:
        result_json({"examples": EXAMPLES})
    else:
        result("\n".join(f"{name:<10} {text}" for name, text in EXAMPLES.items()))


def _written(path: Path, as_json: bool) -> None:
    """JSON: ``profile``, the path of what was written."""
    if as_json:
        result_json({"profile": str(path)})
    else:
        result(f"{path}\nnext: specbuild check {path}")
