from __future__ import annotations

from pathlib import Path

import pytest
import sample_plan as sample

from specbuild.plan import Plan
from specbuild.report import Report
from specbuild.report.terminal import page, plan_table

GOLDEN = Path(__file__).parent / "plan.txt"


def test_the_whole_table() -> None:
    """When the table is meant to change: read the new one, then write it as ``sample_plan.py`` says at its end."""
    assert plan_table(sample.plan()) == GOLDEN.read_text(encoding="utf-8")


def columns(plan: Plan, row: str) -> str:
    return next(line for line in plan_table(plan).splitlines() if line.strip().startswith(row)).strip()


def test_off_is_an_answer_with_its_arithmetic() -> None:
    text = plan_table(sample.only("batch"))
    assert columns(sample.only("batch"), "policy").split("  ")[-1].strip() == "off"
    assert "batch: off: at best (draft_len 2) a round takes 31 ms for 2.1 tokens" in text
    assert "unconfirmed" not in text
    assert "NOT" not in text


def test_a_budget_that_is_missed_and_a_prediction_that_failed_say_so_beside_the_figure() -> None:
    plan = sample.only("tight")
    assert "draft_len 5 (unconfirmed)" in columns(plan, "policy")
    assert "predicted 5.10 (unconfirmed)" in columns(plan, "tokens a round")
    assert "tpot_p95 10.9 of 5 ms" in columns(plan, "budget")
    assert "NOT met" in plan_table(plan)


def test_a_policy_by_prompt_length_is_shown_and_each_length_is_marked_as_chosen() -> None:
    chosen = sample.choices()["interactive"].model_copy(update={"policy": sample.banded()})
    plan = sample.plan(choices={"interactive": chosen})
    assert "≤20: 2, else: 5" in columns(plan, "policy")
    marked = [line.split()[0] for line in plan_table(plan).splitlines() if line.endswith("  interactive")][1:]
    assert marked == ["2", "5"]


def test_a_quantile_that_the_sample_does_not_support_is_a_dash() -> None:
    assert columns(sample.only("batch"), "TTFT").split()[-1] == "120/310/–"


def test_time_between_tokens_is_shown_where_a_budget_asks_for_it() -> None:
    assert "ITL" not in plan_table(sample.plan())
    assert "ITL" in plan_table(sample.plan(budgets={"interactive": {"itl_p95_ms": 30}}))


def test_an_older_plan_without_budgets_still_says_whether_they_are_met() -> None:
    plan = sample.only("tight").model_copy(update={"budgets": {}})
    assert columns(plan, "budget").endswith("NOT met")


def test_the_page_holds_what_the_folder_holds(tmp_path: Path) -> None:
    text = page(Report.of_folder(sample.write(tmp_path)))
    for words in (
        "! no policy meets the budget tight",
        "Baseline: the target alone",
        "Evidence: share",
        "prompt",
        "0–19",
    ):
        assert words in text
    assert max(len(line) for line in text.splitlines()) <= 100
    replays = text.split("Every replay")[1].split("Evidence")[0].splitlines()
    assert len([line for line in replays if line.startswith("  orchestrated")]) == 4
    benched = next(number for number, line in enumerate(replays) if "draft_len 3" in line)
    assert replays[benched + 1] == "  (interrupted: partial)"


def test_an_interrupted_baseline_says_so_at_once_and_beside_its_title(tmp_path: Path) -> None:
    sample.baseline(interrupted=True, unsent=7).write(tmp_path / "baseline.json")
    text = page(Report.of_folder(tmp_path))
    assert "! there is no plan yet" in text
    assert "! the baseline was interrupted with 7 requests unsent: its figures are partial" in text
    assert "(interrupted: partial)" in text.split("Baseline", 1)[1]


@pytest.mark.parametrize("words", ["\x1b[2J\x1b[31mred", "a\rb", "long " * 100])
def test_words_of_a_file_cannot_steer_the_terminal_or_break_the_width(words: str) -> None:
    text = plan_table(sample.plan(notes=(words,), environment={words: words}, arrivals=words))
    assert not set(text) & {"\x1b", "\r"}
    assert max(len(line) for line in text.splitlines()) <= 100
