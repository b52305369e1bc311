"""Tests of the tables and the drawing of traced trees, with hostile texts."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import RenderableType
from syrupy.assertion import SnapshotAssertion

from sunshower.cli.formatting import Terminal
from sunshower.cli.traces import drawn_tree, one_line, tables
from sunshower.runtime.events.trace_recorder import Traces, TupleTrace
from tests.cli.traces.samples import FAILED, FOUND, REPLAY


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times are shown as on the clock of the machine."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def printed(*what: RenderableType) -> str:
    file = io.StringIO()
    console = Terminal(file=file, width=150)
    for renderable in what:
        console.print(renderable)
    return file.getvalue()


def test_the_tables_are_the_latest_the_slowest_and_the_failed_trees(
    approved: SnapshotAssertion,
) -> None:
    assert printed(*tables(FOUND, 10, failed=False)) == approved
    assert printed(*tables(FOUND, 10, failed=True)) == approved
    assert [*tables(replace(FOUND, trees=()), 10, failed=False)] == []


def test_a_table_has_at_most_the_wanted_rows_and_the_total() -> None:
    text = printed(*tables(Traces((REPLAY,) * 30, ()), 10, failed=False))
    assert text.count(REPLAY.root) == 20, "in two tables"
    assert "latest (10 of 30)" in text


def test_a_tree_is_drawn_with_the_time_and_the_end_of_each_edge(
    approved: SnapshotAssertion,
) -> None:
    assert printed(drawn_tree(FAILED)) == approved


def test_texts_change_neither_the_terminal_nor_the_layout() -> None:
    for text in (printed(drawn_tree(FAILED)), printed(*tables(FOUND, 10, failed=False))):
        assert "\x1b" not in text
    assert "[bold]cat" in printed(drawn_tree(FAILED))
    assert one_line("a\n\n b\tc", 10) == "a b c"
    assert one_line("x" * 20, 10) == "x" * 9 + "…"


def test_a_wide_tree_is_drawn_in_part() -> None:
    wide = replace(FAILED, hops=FAILED.hops[:1] * 500)
    assert "and 300 more edges" in printed(drawn_tree(wide))


def unknown(tree: TupleTrace) -> TupleTrace:
    return replace(
        tree, outcome="unknown", message_id="", attempt=None, emitted_s=None, ended_s=None
    )


def test_trees_of_which_a_part_is_not_recorded(approved: SnapshotAssertion) -> None:
    """Their spout has died, or an edge was dropped: that is not shown as not processed."""
    died = unknown(REPLAY)
    assert printed(drawn_tree(died), *tables(Traces((died,), ()), 9, failed=False)) == approved
    lost = replace(REPLAY, hops=(replace(REPLAY.hops[0], delivered_s=None, acked_s=None),))
    assert printed(drawn_tree(lost)) == approved
