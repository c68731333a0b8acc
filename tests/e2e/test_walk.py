"""The walk of the README on the tiny pair, by the command line alone: each command leaves what the next one reads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

WALK_TIMEOUT_S = 240


def specbuild(*arguments: str, store: Path, code: int = 0) -> Any:
    """Run a command with ``--json`` in a process of its own; its result, parsed."""
    command = [sys.executable, "-m", "specbuild", *arguments, "--json"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=WALK_TIMEOUT_S,
        env={"PATH": "/usr/bin:/bin", "HOME": str(store.parent), "SPECBUILD_STORE": str(store)},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_profile_to_report(tmp_path: Path, tiny_folder: Path, tiny_store: Path, tiny_engines: object) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(tiny_folder, folder)
    text = (folder / "profile.yaml").read_text()
    (folder / "profile.yaml").write_text(text.replace("tpot_p95_ms: 50", "tpot_p50_ms: 60000"))  # met on any machine
    profile = str(folder / "profile.yaml")

    specbuild("check", profile, store=tiny_store)
    compiled = specbuild("compile", profile, store=tiny_store)
    assert all(step["action"] == "hit" for step in compiled["steps"])

    specbuild("bench", profile, "--requests", "8", store=tiny_store)
    plan = specbuild("tune", profile, "--max-minutes", "0.3", store=tiny_store)
    out = folder / "out" / "tiny"
    assert json.loads((out / "plan.json").read_text())["pair_digest"] == plan["pair_digest"]
    assert plan["choices"].keys() == {"interactive", "batch"}

    again = specbuild("tune", profile, "--max-minutes", "0.3", store=tiny_store)
    assert again["created"] == plan["created"]

    rendered = specbuild("render", profile, store=tiny_store)
    assert Path(rendered["repository"], "tiny", "config.pbtxt").is_file()

    page = tmp_path / "page.html"
    report = specbuild("report", profile, "--html", str(page), store=tiny_store)
    assert report["plan"]["key"] == plan["key"]
    assert "held-out requests" in page.read_text()


def test_every_step_says_which_comes_before(tmp_path: Path, tiny_folder: Path) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(tiny_folder, folder)
    profile, store = str(folder / "profile.yaml"), tmp_path / "empty"
    for command, before, code in (
        ("tune", "compile", 5),
        ("bench", "compile", 5),
        ("render", "tune", 2),
        ("serve", "render", 7),
        ("report", "tune", 2),
    ):
        error = specbuild(command, profile, store=store, code=code)
        assert f"specbuild {before}" in json.dumps(error)
