from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
import sample_plan as sample

from specbuild.plan import Plan
from specbuild.report import Report
from specbuild.report.html import page

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--dump-dom",
]  # fmt: skip
VOID = {"meta", "link", "br", "line", "rect", "circle", "polyline"}
EVIL = "<img src=x onerror=alert(1)>\"'&</script><script>alert(2)</script>"


class Reader(HTMLParser):
    """Tags that are open, all tags with their attributes, the text, and the page's data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.data = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.data += data
        elif self.open and self.open[-1] != "style":
            self.text.append(data)


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report.of_folder(sample.write(tmp_path / "out"))


def of_plan(tmp_path: Path, plan: Plan) -> Reader:
    return Reader(page(Report.of_folder(sample.write(tmp_path / "out", plan))))


def test_every_tag_is_closed_and_every_fact_is_there(report: Report) -> None:
    text = " ".join(Reader(page(report)).text)
    for words in (
        "made-pair", "exact numerics", "draft_len 5", "tpot_p95 ≤ 40 ms", "2.30x [2.21, 2.40] over off",
        "94.8 tokens/s", "NOT met", "(unconfirmed)", "predicted 5.10", "no draft length beats it beyond doubt",
        "at best (draft_len 2)", "fused: 91.2 tokens/s", "Predicted from evidence and step times", "2.29x [2.18, 2.41]",
        "interrupted: partial", "0–19", "1 at once", "Example CPU @ 2.60GHz", "requests", "Baseline",
        "46 length, 2 stop", "specbuild",
    ):  # fmt: skip
        assert words in text, words


def test_the_page_carries_its_data(report: Report) -> None:
    assert Report.model_validate_json(Reader(page(report)).data) == report


def test_the_page_needs_nothing_else(report: Report) -> None:
    text = page(report)
    read = Reader(text)
    assert not re.search(r"https?:|//|@import|url\(", text.replace(Reader(text).data, ""))
    links = [value for _, attrs in read.tags for name, value in attrs.items() if name in ("src", "href")]
    assert links == ["data:,"]
    assert [attrs for tag, attrs in read.tags if tag == "script"] == [{"type": "application/json", "id": "report"}]
    (policy,) = [attrs["content"] for _, attrs in read.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_words_of_a_file_are_words(tmp_path: Path) -> None:
    choice = sample.choices()["interactive"].model_copy(update={"reasons": (EVIL,)})
    plan = sample.plan(
        profile=EVIL,
        arrivals=EVIL,
        notes=(EVIL,),
        graphs_compared=(EVIL,),
        environment={EVIL: EVIL},
        choices={EVIL: choice},
        budgets={},
        created=EVIL,
    )
    read = of_plan(tmp_path, plan)
    assert not {"img", "b"} & {tag for tag, _ in read.tags}
    assert [attrs for tag, attrs in read.tags if tag == "script"] == [{"type": "application/json", "id": "report"}]
    assert not [name for _, attrs in read.tags for name in attrs if name.startswith("on")]
    assert sum(EVIL in text for text in read.text) >= 6
    assert json.loads(read.data)["plan"]["profile"] == EVIL


def test_without_drafting_there_is_no_acceptance(tmp_path: Path) -> None:
    text = " ".join(of_plan(tmp_path, sample.only("batch")).text)
    assert "Acceptance by position" not in text
    assert "no draft length beats it beyond doubt" in text


def test_a_baseline_alone_makes_a_page(tmp_path: Path) -> None:
    sample.baseline(interrupted=True, unsent=3).write(tmp_path / "baseline.json")
    text = " ".join(Reader(page(Report.of_folder(tmp_path))).text)
    assert "there is no plan yet" in text
    assert "interrupted: partial" in text
    assert "Example CPU" in text


def test_many_budgets_have_a_page(tmp_path: Path) -> None:
    choices = {f"budget-{number}": sample.choices()["interactive"] for number in range(12)}
    text = " ".join(of_plan(tmp_path, sample.plan(choices=choices, budgets={})).text)
    assert all(name in text for name in choices)


def browse(text: str, folder: Path) -> tuple[str, str]:
    """The page as a browser has it after loading, and what the browser had to say."""
    assert CHROMIUM is not None
    folder.mkdir()
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'browser'}", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    return done.stdout, done.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_real_browser_shows_it_without_a_complaint(report: Report, tmp_path: Path) -> None:
    _, complaint = browse("<script>console.error('heard')</script>", tmp_path / "control")
    assert "CONSOLE" in complaint
    dom, said = browse(page(report), tmp_path / "page")
    assert "CONSOLE" not in said
    shown = Reader(dom)
    words = " ".join(shown.text)
    assert all(part in words for part in ("made-pair", "draft_len 5", "NOT met", "Speedup over off", "1 at once"))
    assert len([tag for tag, _ in shown.tags if tag == "svg"]) == 7
    assert Report.model_validate_json(shown.data) == report
