"""``specbuild render``."""

from __future__ import annotations

from pathlib import Path

import click

from specbuild.cli.options import json_option, store_option
from specbuild.console import result, result_json
from specbuild.units import human_bytes


@click.command("render")
@click.argument("profile", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--check", "folder", type=click.Path(path_type=Path, file_okay=False), help="Check a repository instead.")
@click.option("-o", "--out", type=click.Path(path_type=Path, file_okay=False),
              help="Where to write it [default: out/NAME/repository beside the profile].")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="List what would be written, and stop.")
@store_option
@json_option
def command(
    profile: Path | None, folder: Path | None, out: Path | None, dry_run: bool, store: Path | None, as_json: bool
) -> None:
    """Write the Triton model repository that serves the plan of PROFILE.

    It holds all it needs: the engines, the plan, the model and its code. Exit code 7: the plan was not made for these
    engines, or --check found faults.
    """
    if (profile is None) == (folder is None):
        raise click.UsageError("give a PROFILE, or --check DIR")
    if folder is not None:
        _check(folder, as_json=as_json)
    elif profile is not None:
        _render(profile, out, store, dry_run=dry_run, as_json=as_json)


def _check(folder: Path, *, as_json: bool) -> None:
    from specbuild.triton_repo.check import check

    manifest = check(folder)
    if as_json:
        result_json({"repository": str(folder), "models": list(manifest.models), "files": len(manifest.files)})
    else:
        result(f"{folder}: nothing wrong ({len(manifest.files)} files, model {', '.join(manifest.models)})")


def _render(path: Path, out: Path | None, store: Path | None, *, dry_run: bool, as_json: bool) -> None:
    from specbuild import builder
    from specbuild.errors import ProfileError, RepositoryError
    from specbuild.plan import Plan
    from specbuild.profile import Profile
    from specbuild.triton_repo.layout import disagreements, layout
    from specbuild.triton_repo.write import render

    profile = Profile.load(path)
    plan_file = profile.out / "plan.json"
    if not plan_file.is_file():
        raise ProfileError("there is no plan yet", where=str(plan_file), fix=f"run specbuild tune {path}")
    plan = Plan.read(plan_file)
    engines = builder.find_engines(profile, store=store)
    if dry_run:
        if faults := list(disagreements(profile, engines, plan)):
            raise RepositoryError(faults)
        sizes = {item.path: item.size for item in layout(profile, engines, plan).items}
        if as_json:
            result_json(sizes)
        else:
            result("\n".join(f"{human_bytes(size):>12}  {name}" for name, size in sizes.items()))
        return
    folder = render(profile, engines, plan, out=out)
    if as_json:
        result_json({"repository": str(folder), "model": profile.model_name})
    else:
        result(str(folder))
