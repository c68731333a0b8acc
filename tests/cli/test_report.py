from __future__ import annotations

import json
from pathlib import Path

import pytest
import sample_plan as sample

from specbuild.cli import main
from specbuild.report import Report

PROFILE = """\
name: made-pair
target: {model: t, precision: fp16}
draft: {model: d, precision: fp16}
budgets:
  interactive: {tpot_p95_ms: 40, ttft_p50_ms: 500}
  batch: max_throughput
  tight: {tpot_p95_ms: 5}
traffic: {file: traffic.jsonl}
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(PROFILE)
    return path


def test_it_prints_the_plan_and_writes_the_page_beside_it(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = sample.write(profile.parent / "out" / "made-pair")
    assert main(["report", str(profile)]) == 0
    stdout, stderr = capsys.readouterr()
    assert "2.30x [2.21, 2.40]" in stdout
    assert "\x1b" not in stdout
    assert stderr == f"the same as a page: {out / 'report.html'}\n"
    assert "<!DOCTYPE html>" in (out / "report.html").read_text(encoding="utf-8")


def test_json_is_the_report_and_writes_nothing(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = sample.write(profile.parent / "out" / "made-pair")
    assert main(["report", str(profile), "--json"]) == 0
    assert Report.model_validate_json(capsys.readouterr().out) == Report.of_folder(out)
    assert not (out / "report.html").exists()


def test_the_page_goes_where_it_is_told(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = sample.write(profile.parent / "out" / "made-pair")
    page = profile.parent / "deep" / "page.html"
    assert main(["report", str(profile), "--html", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["profile"] == "made-pair"
    assert page.exists()
    assert not (out / "report.html").exists()


def test_budgets_that_changed_since_are_said(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample.write(profile.parent / "out" / "made-pair")
    profile.write_text(PROFILE.replace("tpot_p95_ms: 40", "tpot_p95_ms: 30"))
    assert main(["report", str(profile)]) == 0
    assert "! the budgets of the profile have changed since the plan was made" in capsys.readouterr().out


def test_before_any_run_it_says_what_to_run(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(profile)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "nothing to report yet" in err
    assert "run specbuild tune" in err
    assert not (profile.parent / "out").exists()
