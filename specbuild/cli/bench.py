"""``specbuild bench``: replay the traffic under one policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from specbuild.cli.options import json_option, profile_argument, store_option
from specbuild.console import result, result_json, say

if TYPE_CHECKING:
    from specbuild.measurement import Measurement
    from specbuild.plan import Graph
    from specbuild.profile import Profile


def _draft_len(value: str) -> int:
    """A whole number, or ``off``."""
    if value == "off":
        return 0
    if not value.isdecimal():
        raise click.BadParameter(f"{value!r} is neither a whole number nor 'off'", param_hint="--draft-len")
    return int(value)


@click.command("bench")
@profile_argument
@click.option(
    "--draft-len", type=_draft_len, metavar="N|off", default="off", show_default=True, help="Tokens drafted in a round."
)
@click.option(
    "--graph",
    type=click.Choice(["fused", "orchestrated"]),
    help="How the pair runs [default: the plan's where there is one, else fused].",
)
@click.option("--arrivals", type=click.Choice(["recorded", "closed"]), help="How requests arrive [default: profile's].")
@click.option("--concurrency", type=click.IntRange(1, 1024), help="Requests at once in a closed loop.")
@click.option("--requests", type=click.IntRange(1), help="Replay this many of the trace.")
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write.")
@store_option
@json_option
def command(
    profile: Path,
    draft_len: int,
    graph: Graph | None,
    arrivals: Literal["recorded", "closed"] | None,
    concurrency: int | None,
    requests: int | None,
    out: Path | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Replay the traffic of PROFILE with one draft length and measure it; off is the target alone.

    Ctrl-C writes what was measured so far, marked as interrupted.
    """
    from specbuild import runtime
    from specbuild.builder import find_engines
    from specbuild.profile import Profile
    from specbuild.runtime.arrivals import Arrivals
    from specbuild.runtime.benching import path_of

    loaded = Profile.load(profile)
    traffic = loaded.traffic
    graph = graph or _planned_graph(loaded)
    file = out or path_of(loaded, graph, draft_len)
    measured = runtime.bench(
        loaded,
        find_engines(loaded, store=store),
        draft_len=draft_len,
        graph=graph,
        arrivals=Arrivals(
            arrivals or ("closed" if concurrency else traffic.arrivals),
            concurrency or traffic.concurrency,
            traffic.speed,
        ),
        requests=requests,
        out=file,
    )
    if as_json:
        result_json(measured.model_dump(mode="json"))
    else:
        result(_card(measured))
    say(f"written to {file}")
    if measured.interrupted:
        say("interrupted: only the requests that ended before are in it")
        click.get_current_context().exit(130)


def _planned_graph(profile: Profile) -> Graph:
    from specbuild.plan import Plan

    path = profile.out / "plan.json"
    return Plan.read(path).graph if path.is_file() else "fused"


def _card(measured: Measurement) -> str:
    from specbuild.report.compare import baseline_facts
    from specbuild.report.layout import facts

    one = measured.measured
    title = (
        f"{measured.profile}: {one.policy}, {measured.graph} graph, {measured.arrivals}, {measured.numerics} numerics"
    )
    shares = ", ".join(f"{share:.2f}" for share in one.acceptance_per_position)
    rows = [
        *baseline_facts(measured),
        ("tokens a round", f"{one.tokens_per_round:.2f}"),
        *([("accepted at 1, 2, …", shares), ("acceptance length", f"{one.acceptance_length:.2f}")] if shares else []),
        *((f"within {name}, requests/s", f"{rate:.2f}") for name, rate in one.goodput_per_s.items()),
        *([("not sent", str(measured.unsent))] if measured.unsent else []),
    ]
    return "\n".join([title, *facts(rows)])
