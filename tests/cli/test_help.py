"""Help is quick because it imports nothing heavy; ``benchmarks/startup.py`` takes the time."""

from __future__ import annotations

import subprocess
import sys

import pytest

import specbuild
from specbuild.cli import COMMANDS

HEAVY = {
    "grpc", "numpy", "nncf", "openvino", "openvino_genai", "optimum", "pydantic", "rich", "torch", "transformers",
    "tritonclient", "yaml",
}  # fmt: skip
PROGRAM = f"""
import sys
from specbuild.cli import main
code = main(sys.argv[1:])
print("imported:", {HEAVY} & set(sys.modules) or "nothing heavy")
sys.exit(code)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_imports_nothing_heavy(name: str) -> None:
    done = run(name, "-h")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: specbuild {name} ")
    assert done.stdout.splitlines()[-1] == "imported: nothing heavy"


def test_help_lists_every_command_and_exit_code() -> None:
    done = run("--help")
    assert done.stdout.splitlines()[-1] == "imported: nothing heavy"
    for name, text in COMMANDS.items():
        assert f"  {name}" in done.stdout
        assert text in done.stdout
    assert "Exit codes: 1 internal error, 2 profile" in done.stdout


def test_version() -> None:
    done = run("--version")
    assert done.stdout.splitlines() == [f"specbuild, version {specbuild.__version__}", "imported: nothing heavy"]


def test_without_a_command_there_is_help_and_a_failure() -> None:
    done = run()
    assert done.returncode == 2
    assert "Commands:" in done.stdout + done.stderr
