"""Tests of writing and reading history files, and of error messages for invalid lines."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sunshower.errors import ExperimentError
from sunshower.experiments.event_history import History, from_lines, to_lines
from sunshower.runtime.events.event_log import Entry, What
from tests.experiments.scripts import RELAY, SINK, SPOUT, TASKS, Script


def full() -> History:
    """A history with an entry of every kind."""
    script = Script().whole(0).fault().emitted(1).sent(1, 7, SPOUT, RELAY).refused(1, 7, RELAY)
    script.failed(1).add(What.DEAD, SPOUT, values=[1]).add(
        What.STARTED, values=[SPOUT], detail=(2, 1)
    )
    script.add(What.EMITTED, SPOUT, [5, 6], [2, 3], [1, 1], detail=[("a", 1), "b"])
    script.add(What.NOTED, SPOUT, detail=("batch begun", {"txid": 1, "skip": False}))
    return script.wrote(("a", 1), {"n": 2}).history()


def as_values(history: History) -> list[tuple[object, ...]]:
    return [
        (round(e.at_s - history.begun_s, 6), e.what, e.task, *map(repr, map(np.ndarray.tolist, (
            e.roots, e.values, e.attempts))), e.detail)
        for e in history.entries
    ]  # fmt: skip


def test_a_history_is_read_as_it_was_written() -> None:
    history = full()
    assert {entry.what for entry in history.entries} == set(What)
    again = from_lines(to_lines(history), tasks=TASKS)
    assert as_values(again) == as_values(history)
    assert again.cut is None
    assert list(to_lines(again)) == list(to_lines(history))


def test_a_line_is_one_event_of_one_tuple() -> None:
    script = Script().add(What.EMITTED, SPOUT, [1 << 48 | 1, 2], [17, 18], [1, 2])
    first, second, _ = map(json.loads, to_lines(script.history()))
    assert first == {
        "t": 0.001,
        "what": "emitted",
        "task": "numbers[0]",
        "message": 17,
        "root": "0001000000000001",
        "attempt": 1,
    }
    assert (second["message"], second["root"]) == (18, "0000000000000002")


def test_tuples_of_one_entry_are_one_entry_again() -> None:
    script = Script().add(What.SENT, SPOUT, [1, 2, 3], [4, 5, 6], detail=RELAY)
    (entry,) = from_lines(to_lines(script.history()), tasks=TASKS).entries
    assert entry.values.tolist() == [4, 5, 6]
    assert entry.detail == RELAY


def test_the_names_of_tasks_are_read_without_a_plan() -> None:
    history = from_lines(to_lines(full()))
    sent = history.rows(What.SENT)
    assert [history.name(task) for task in sent.targets.tolist()] == [
        "relay[0]",
        "sink[0]",
        "relay[0]",
    ]
    assert history.name(int(sent.tasks[0])) == "numbers[0]"


@pytest.mark.parametrize("missing", [1, 10, 40])
def test_the_whole_lines_of_a_file_that_breaks_off_are_read(missing: int) -> None:
    text = "".join(list(to_lines(Script().whole(0).history()))[:-1])
    lines = text[:-missing].splitlines(keepends=True)
    history = from_lines(lines, "run/history.jsonl", TASKS)
    assert history.cut == "run/history.jsonl breaks off at line 9"
    assert len(history) == (9 if missing == 1 else 8)


def test_a_file_that_breaks_off_between_two_lines_is_cut_too() -> None:
    lines = list(to_lines(Script().whole(0).history()))
    assert from_lines(lines[:4]).cut == "history.jsonl breaks off at line 4"
    assert from_lines([]).cut == "history.jsonl breaks off at line 0"


def test_a_cut_history_stays_cut() -> None:
    history = Script().whole(0).history(cut="the power failed")
    assert from_lines(to_lines(history)).cut is not None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"t": 1, "what": "emit', "not valid JSON"),
        ("[1]", "not a valid event"),
        ('{"t": 1, "what": "unknown"}', "one of: emitted, completed"),
        ('{"t": 1, "what": "sent", "task": "a[0]"}', "sent without 'root'"),
        ('{"what": "begun", "fault": "x"}', "begun without 't'"),
        ('{"t": "now", "what": "begun", "fault": "x"}', "'t' is 'now'"),
        ('{"t": 1, "what": "acked", "task": "a[0]", "root": "1", "edge": "2"}', "16 hexadecimal"),
        ('{"t": 1, "what": "dead", "task": "a[0]", "message": "x"}', "'message' is 'x'"),
    ],
)
def test_any_other_invalid_line_is_named(line: str, words: str) -> None:
    good, *rest = to_lines(Script().whole(0).history())
    with pytest.raises(ExperimentError, match=f"run.jsonl, line 2: .*{words}"):
        from_lines([good, line + "\n", *rest], "run.jsonl")


def test_columns_have_a_row_for_each_tuple() -> None:
    script = Script().add(What.EMITTED, SPOUT, [1, 2], [0, 1], [1, 1])
    script.add(What.EMITTED, SINK, [3], [2], [1]).fault()
    rows = script.history().rows(What.EMITTED)
    assert rows.roots.tolist() == [1, 2, 3]
    assert rows.at_s.round(6).tolist() == [0.001, 0.001, 0.002]
    assert rows.tasks.tolist() == [SPOUT, SPOUT, SINK]
    assert rows.order.tolist() == [0, 0, 1]
    assert rows.details == [None, None, None]
    assert len(script.history().rows(What.REFUSED)) == 0


def test_entries_are_sorted_by_time_and_keep_their_order_at_equal_times() -> None:
    entries = [Entry(2.0, What.BEGUN, detail="b"), Entry(1.0, What.BEGUN, detail="a")]
    entries += [Entry(2.0, What.ENDED, detail="b")]
    assert [entry.detail for entry in History(entries, {}).entries] == ["a", "b", "b"]


def test_faults_are_bands_on_the_time_line() -> None:
    script = Script().fault("kill a").fault("pause b", for_s=2).add(What.BEGUN, detail="cut c")
    first, second, third = script.history().faults
    assert (first.words, round(first.begun_s, 3)) == ("kill a", 0.001)
    assert second.ended_s == pytest.approx(2.004)
    assert third.ended_s is None


def test_an_older_file_that_does_not_name_the_started_spouts_is_read() -> None:
    lines = [
        '{"t": 0.5, "what": "started", "worker": 2, "life": 1}\n',
        '{"t": 1, "what": "over"}\n',
    ]
    (entry,) = from_lines(lines).entries
    assert (entry.what, entry.detail, len(entry.values)) == (What.STARTED, (2, 1), 0)
