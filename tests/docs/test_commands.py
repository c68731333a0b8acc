"""Every command that a page shows is one that exists, and the generated page is current."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import click
import pytest

from specbuild.cli import cli

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "profiles/**/*.md", "benchmarks/**/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "cli.md"
)
BLOCK = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(
    r"(?<![\w/.])(?:\.?ci|docs|benchmarks|tests|specbuild|builder|runtime|triton_repo|profiles)/[\w./-]*\w"
)
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _commands(name: str) -> list[tuple[Path, list[str]]]:
    """The lines of all shell blocks that begin with ``name``, as words; a trailing backslash joins two lines."""
    found = []
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removeprefix("$ "), comments=True)
                if words and words[0] == name:
                    found.append((page, words))
    return found


def _label(value: Path | list[str]) -> str:
    return value.name if isinstance(value, Path) else " ".join(value)


def _parse(words: list[str]) -> None:
    """Parse as the command line would, without looking for the files that are named. Raises click.UsageError."""
    context = click.Context(cli, info_name="specbuild", **cli.context_settings)
    command: click.Command = cli
    arguments = words[1:]
    while isinstance(command, click.Group):
        _, arguments, _ = command.make_parser(context).parse_args(arguments)
        if not arguments:
            return
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        context, command = click.Context(found, info_name=name, parent=context), found
    command.make_parser(context).parse_args(arguments)


def test_the_readme_shows_the_walk() -> None:
    shown = {words[1] for page, words in _commands("specbuild") if page.name == "README.md"}
    assert {"init", "check", "compile", "bench", "tune", "render", "serve", "ask", "report"} <= shown


@pytest.mark.parametrize(("page", "words"), _commands("specbuild"), ids=_label)
def test_every_shown_command_parses(page: Path, words: list[str]) -> None:
    _parse(words)


def test_every_shown_recipe_exists() -> None:
    shown = {(page.name, word) for page, words in _commands("make") for word in words[1:] if "=" not in word}
    assert shown
    assert {recipe for _, recipe in shown} <= TARGETS


def test_every_file_that_is_named_exists() -> None:
    for page in PAGES:
        for name in FILE.findall(page.read_text("utf-8")):
            assert (ROOT / name).exists() or (page.parent / name).exists(), f"{page.name} names {name}"


def test_links_between_pages_resolve() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), f"{page.relative_to(ROOT)} links to {link}"


def test_the_page_of_commands_is_current() -> None:
    page = runpy.run_path(str(ROOT / "ci" / "clidocs.py"))["page"]
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == page(), "run make docs"


def test_the_readme_says_what_the_locks_cost() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for lock in ("requirements.lock", "requirements-models.lock"):
        size = re.match(r"# size: (\d+ MB) to download", (ROOT / lock).read_text(encoding="utf-8"))
        assert size
        assert size[1] in readme
