"""``specbuild report``: the plan and its measurements, on the terminal, as JSON and as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from specbuild.cli.options import json_option, profile_argument
from specbuild.console import result, result_json, say


@click.command("report")
@profile_argument
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="Where the page goes [default: the out folder]."
)
@json_option
def command(profile: Path, html: Path | None, as_json: bool) -> None:
    """Show the plan of PROFILE and its measurements, and write them as one HTML page.

    The page needs no network and no other file. With --json it is only written where --html says.
    """
    from specbuild.profile import Profile
    from specbuild.record import write_atomically
    from specbuild.report import Report
    from specbuild.report.html import page as html_page
    from specbuild.report.terminal import page

    loaded = Profile.load(profile)
    report = Report.of_profile(loaded)
    if as_json:
        result_json(report.model_dump(mode="json"))
    else:
        result(page(report).rstrip("\n"))
        html = html or loaded.out / "report.html"
    if html:
        write_atomically(html, html_page(report).encode())
        say(f"the same as a page: {html}")
