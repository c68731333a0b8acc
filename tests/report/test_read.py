from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sample_plan as sample

from specbuild.errors import ProfileError
from specbuild.report import Report
from specbuild.report.agreement import cells, rows


def test_everything_that_belongs_together_is_read(tmp_path: Path) -> None:
    report = Report.of_folder(sample.write(tmp_path))
    assert report.plan == sample.plan()
    assert report.baseline == sample.baseline()
    assert [str(replay.measured.policy) for replay in report.replays] == [
        "off",
        "draft_len 5",
        "draft_len 6",
        "draft_len 3",
    ]
    assert report.agreement == cells(sample.evidence())
    assert report.step_times["orchestrated"].batch_sizes == (1, 4)
    assert report.title == "made-pair"
    assert all("tight" in caution for caution in report.cautions)


def test_json_and_back(tmp_path: Path) -> None:
    report = Report.of_folder(sample.write(tmp_path))
    report.write(tmp_path / "report.json")
    assert Report.read(tmp_path / "report.json") == report


def test_without_a_run_there_is_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"nothing to report yet\n    → run specbuild tune"):
        Report.of_folder(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["plan.json", "baseline.json", "measurements.json", "bench_fused_off.json", "evidence.npz", "steptimes.json"],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    sample.write(tmp_path)
    (tmp_path / name).write_bytes(b"{")
    with pytest.raises(ProfileError) as caught:
        Report.of_folder(tmp_path)
    assert {fault.where for fault in caught.value.faults} == {str(tmp_path / name)}


def test_step_times_of_a_wrong_shape_are_damage(tmp_path: Path) -> None:
    times = sample.step_times()
    times["graphs"]["orchestrated"]["median_ms"] = [[1.0, 2.0]]
    (sample.write(tmp_path) / "steptimes.json").write_text(json.dumps(times))
    with pytest.raises(ProfileError, match="a row a batch size"):
        Report.of_folder(tmp_path)


def test_a_bench_alone_is_enough(tmp_path: Path) -> None:
    sample.baseline().write(tmp_path / "bench_fused_off.json")
    report = Report.of_folder(tmp_path)
    assert (report.title, report.plan, report.replays) == ("made-pair", None, (sample.baseline(),))


@pytest.mark.parametrize("name", ["baseline.json", "measurements.json", "evidence.npz", "steptimes.json"])
def test_only_the_plan_is_needed(tmp_path: Path, name: str) -> None:
    (sample.write(tmp_path) / name).unlink()
    assert Report.of_folder(tmp_path).plan == sample.plan()


def of_another_pair(out: Path) -> None:
    sample.baseline(pair_digest="ff" * 32).write(out / "baseline.json")


def of_other_numerics(out: Path) -> None:
    sample.baseline(numerics="fast").write(out / "baseline.json")


def benched_on_another_pair(out: Path) -> None:
    sample.baseline(pair_digest="ff" * 32).write(out / "bench_fused_off.json")


def of_other_evidence(out: Path) -> None:
    (out / "evidence.npz").unlink()
    sample.plan(evidence_digest="ff" * 32).write(out / "plan.json")
    sample.evidence().write(out / "evidence.npz")


def of_other_engines(out: Path) -> None:
    (out / "steptimes.json").write_text(json.dumps({**sample.step_times(), "pair_digest": "ff" * 32}))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (of_another_pair, "baseline.json"),
        (of_other_numerics, "baseline.json"),
        (benched_on_another_pair, "bench_fused_off.json"),
        (of_other_evidence, "evidence.npz"),
        (of_other_engines, "steptimes.json"),
    ],
)
def test_a_file_that_is_not_the_plans_is_left_out_and_said(
    tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    make(sample.write(tmp_path))
    report = Report.of_folder(tmp_path)
    shown = {"baseline.json": report.baseline, "evidence.npz": report.agreement, "steptimes.json": report.step_times}
    assert [other for other, found in shown.items() if not found] == [name] * (name in shown)
    assert len(report.replays) == 4
    assert report.cautions[0] == f"{name} does not belong to plan.json and is left out; run specbuild tune again"


def test_agreement_counts_every_drafted_token_once_and_means_what_it_says() -> None:
    evidence = sample.evidence()
    found = cells(evidence)
    assert sum(cell.tokens for cell in found) == len(evidence.agree) - evidence.requests
    by_bands = {(cell.prompt, cell.output): cell for cell in found}
    short = by_bands["0–19", "8–31"]
    assert (short.tokens, short.share) == (2, pytest.approx(evidence.agree[8:10].mean()))
    sampled = by_bands["≥ 1000", "1–7"]
    assert sampled.share == pytest.approx(float(np.mean(evidence.accept[51:58])))


def test_agreement_shows_only_bands_that_hold_tokens() -> None:
    shown = rows(cells(sample.evidence()))
    assert [*shown] == ["0–19", "50–199", "≥ 1000"]
    assert [[cell is not None for cell in row] for row in shown.values()] == [
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]
