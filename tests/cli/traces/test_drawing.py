"""Tests of the tables and the drawing of traced trees, with hostile texts."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import RenderableType

from sunshower.cli.formatting import Terminal
from sunshower.cli.traces.command import drawn_tree, one_line, tables
from sunshower.runtime.events.trace_recorder import Traces, TupleTrace
from tests.cli.traces.samples import FAILED, FOUND, REPLAY


def printed(*what: RenderableType) -> str:
    file = io.StringIO()
    console = Terminal(file=file, width=150)
    for one in what:
        console.print(one)
    return file.getvalue()


def titles(found: Traces, **how: bool) -> list[str]:
    lines = printed(*tables(found, 10, failed=how.get("failed", False))).splitlines()
    return [line.strip() for line in lines if line.strip() in ("latest", "slowest", "failed")]


def test_the_tables_are_the_latest_the_slowest_and_the_failed_trees() -> None:
    assert titles(FOUND) == ["latest", "slowest", "failed"]
    assert titles(FOUND, failed=True) == ["failed"]
    assert titles(replace(FOUND, trees=())) == []
    text = printed(*tables(FOUND, 10, failed=False))
    assert text.index(REPLAY.root) < text.index(FAILED.root), "the latest is first"
    assert "500 ms" in text or "0.50 s" in text


def test_a_table_has_at_most_the_wanted_rows_and_the_total() -> None:
    text = printed(*tables(Traces((REPLAY,) * 30, ()), 10, failed=False))
    assert text.count(REPLAY.root) == 20, "in two tables"
    assert "latest (10 of 30)" in text


def test_a_tree_is_drawn_with_the_time_and_the_end_of_each_edge() -> None:
    lines = printed(drawn_tree(FAILED)).splitlines()
    assert lines[0].startswith("root 0001000001000007  ·  failed  ·  message ")
    assert "exception in count[0]: ValueError" in lines[1]
    assert lines[2] == "lines[0] on worker 0"
    assert lines[3].startswith(
        "├── split[0] on worker 1  waited 1.5 ms, processed in 2.6 ms  Line("
    )
    assert "failed: exception" in lines[4]
    assert "not acked" in lines[5]
    assert "not processed" in lines[6]
    assert "and 3 edges that were not recorded" in lines[7]


def test_texts_change_neither_the_terminal_nor_the_layout() -> None:
    for text in (printed(drawn_tree(FAILED)), printed(*tables(FOUND, 10, failed=False))):
        assert "\x1b" not in text
    assert "[bold]cat" in printed(drawn_tree(FAILED))
    assert one_line("a\n\n b\tc", 10) == "a b c"
    assert one_line("x" * 20, 10) == "x" * 9 + "…"


def test_a_wide_tree_is_drawn_in_part() -> None:
    wide = replace(FAILED, hops=FAILED.hops[:1] * 500)
    assert "and 300 more edges" in printed(drawn_tree(wide))


def unknown(found: TupleTrace) -> TupleTrace:
    return replace(
        found, outcome="unknown", message_id="", attempt=None, emitted_s=None, ended_s=None
    )


def test_a_tree_whose_spout_has_died_is_drawn_without_its_message() -> None:
    text = printed(
        drawn_tree(unknown(REPLAY)), *tables(Traces((unknown(REPLAY),), ()), 9, failed=False)
    )
    assert "the worker of its spout has died" in text
    assert "None" not in text


def test_a_dropped_part_is_not_shown_as_not_processed() -> None:
    lost = replace(REPLAY, hops=(replace(REPLAY.hops[0], delivered_s=None, acked_s=None),))
    text = printed(drawn_tree(lost))
    assert "recorded it too long ago" in text
    assert "not processed" not in text
