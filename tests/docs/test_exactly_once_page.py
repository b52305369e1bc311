"""Runs the programs of docs/EXACTLY_ONCE.md and its further pages, and checks their results."""

from __future__ import annotations

import runpy
import sqlite3
from pathlib import Path

import pytest

from sunshower.runtime.inline import run_inline
from tests.docs.pages import BATCHES, page, place_programs

PAGE = page("EXACTLY_ONCE", *BATCHES)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's programs, and with two files to count the words of."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/a.txt").write_text("rain and sun\nand wind\n")
    (tmp_path / "corpus/b.txt").write_text("sun\n\nand rain again\n")
    return place_programs(PAGE, tmp_path, monkeypatch)


def test_the_first_program_counts_words_once_and_a_second_run_counts_none_again(
    place: Path,
) -> None:
    for _ in range(2):
        run_inline(runpy.run_path("count_words.py")["topology"].graph())
        with sqlite3.connect("counts.db") as database:
            rows = database.execute("SELECT key, value ->> 1 FROM count ORDER BY key").fetchall()
        assert dict(rows) == {'"again"': 1, '"and"': 3, '"rain"': 2, '"sun"': 2, '"wind"': 1}


def test_the_program_that_tries_the_shop_runs(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path("try_it.py")  # it has an assert of its own
    output = capsys.readouterr().out
    assert "Sales(shop='b', cents=7500)" in output
    assert "('a', 20, 10, 118)" in output


def test_orders_leave_their_batches_to_be_shipped(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_inline(runpy.run_path("sink_beside.py")["topology"].graph())
    shipped = [line for line in capsys.readouterr().out.splitlines() if line.startswith("ship")]
    assert sorted(shipped) == sorted(f"ship {100 + i}" for i in range(100))


def test_the_days_that_are_over_are_printed_and_the_last_one_stays_open(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_inline(runpy.run_path("daily_sales.py")["topology"].graph())
    rows = sorted(capsys.readouterr().out.splitlines())
    days = [f"('{shop}', {day * 86_400}, 7200)" for shop in "ab" for day in (1, 2)]
    assert rows == sorted(days)


def test_unpaid_orders_have_a_reminder(place: Path) -> None:
    runpy.run_path("late_payments.py")  # it has an assert of its own
