from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbuild.report.layout import WIDTH, bars, facts, grid, number, paragraph, printable

WORDS = st.text(st.characters(codec="utf-8"), max_size=60)


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0.00"), (2.314, "2.31"), (9.996, "10.0"), (41.23, "41.2"), (99.96, "100"), (1830.4, "1830"), (-2.5, "-2.50")],
)
def test_numbers_have_three_digits(value: float, words: str) -> None:
    assert number(value) == words


def test_bars_rise_with_the_share() -> None:
    assert bars([0, 0.2, 0.5, 0.99, 1]) == "▁▂▅██"
    assert bars([-1, 2]) == "▁█"


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b[31mb\tc\u202ed") == "a [31mb c d"


@given(st.lists(st.tuples(WORDS, WORDS), max_size=5))
def test_facts_keep_the_width(pairs: list[tuple[str, str]]) -> None:
    assert all(len(line) <= WIDTH for line in facts(pairs))


@given(st.text(max_size=400))
def test_a_paragraph_keeps_the_width_and_the_words(text: str) -> None:
    lines = paragraph(text)
    assert all(len(line) <= WIDTH for line in lines)
    assert "".join("".join(lines).split()) == "".join(printable(text).split())


@given(st.integers(1, 6), st.integers(2, 9), st.data())
def test_a_grid_keeps_the_width_and_shows_every_cell(rows: int, columns: int, data: st.DataObject) -> None:
    cell = st.text("abc", min_size=1, max_size=30)
    cells = data.draw(st.lists(st.lists(cell, min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    lines = grid(cells)
    assert all(len(line) <= WIDTH for line in lines)
    shown = [word for line in lines for word in line.split()]
    assert all(word in shown for row in cells for word in row)


def test_columns_that_do_not_fit_go_below_behind_the_same_labels() -> None:
    rows = [["", "a" * 40, "b" * 40, "c" * 40], ["row", "1", "2", "3"]]
    assert grid(rows) == [
        f"       {'a' * 40}  {'b' * 40}",
        f"  row  {'1':<40}  2",
        "",
        f"       {'c' * 40}",
        "  row  3",
    ]


def test_a_cell_of_several_lines_keeps_its_column() -> None:
    assert grid([["x", "one\ntwo", "three"], ["y", "", "four"]]) == ["  x  one  three", "     two", "  y       four"]


def test_numbers_to_the_right() -> None:
    assert grid([["n", "ms"], ["1", "24.1"], ["10", "9.5"]], right=True) == ["  n     ms", "  1   24.1", "  10   9.5"]


def test_nothing_is_nothing() -> None:
    assert grid([]) == []
    assert facts([]) == []
