"""``specbuild ask`` where there is nothing to ask; its answers are in tests/e2e."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import specbuild.triton_repo.ask
from specbuild.cli import main

PAGE = Path(__file__).parent.parent.parent / "docs" / "serving.md"


def test_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    for model in ([], ["--model", "tiny"]):
        assert main(["ask", "Once", "--url", "127.0.0.1:9", *model]) == 9
        said = capsys.readouterr().err
        assert "127.0.0.1:9" in said
        assert "specbuild serve" in said


def test_the_page_shows_the_program_as_it_is() -> None:
    program = Path(specbuild.triton_repo.ask.__file__).read_text()
    assert program in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(program.splitlines()) <= 45
