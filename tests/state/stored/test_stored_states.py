"""Runs continue with the states and savepoints that an earlier release has stored."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sunshower.runtime.control.savepoint import Savepoint
from sunshower.state import MemoryState
from sunshower.state.backing import Home, MemoryShelf
from sunshower.trident import InSqlite, StateKind
from tests.state.stored.programs import (
    BATCHES,
    FACTS_MADE,
    IN_MEMORY,
    KEPT,
    KINDS,
    NUMBERS,
    PROGRESS,
    STORED,
    dump,
    from_json,
    in_batches,
    load,
    ordinary,
    run_to_end,
    run_until_stop,
    states_in,
    to_json,
)

# Their rows do not depend on how records arrive at the task at the same time.
SAME = ("remembered", "timed", "highest", "panes", "collected", "counted", "sessions")
JOINS = ("inner", "outer")


def check_results(results: dict[str, Any]) -> None:
    """Check the rows of a run that was continued. Those of ended windows may come again."""
    expected = run_to_end(ordinary(MemoryState()), None)
    for name in (*SAME, *JOINS):
        assert {*results[f"{name}-rows"]} == {*expected[f"{name}-rows"]}, name
    totals = {row for row in results["totals-rows"] if row.startswith("('b'")}
    number = len(NUMBERS["b"]), sum(NUMBERS["b"]), max(NUMBERS["b"])
    assert repr(("b", *number)) in totals
    assert repr((len(FACTS_MADE) - 1,)) in results["total-rows"]
    assert results["joined-rows"]
    assert results["last-rows"]


def test_a_savepoint_with_states_in_memory_resumes() -> None:
    savepoint = Savepoint.from_bytes(IN_MEMORY.name, IN_MEMORY.read_bytes())
    check_results(run_to_end(ordinary(None), savepoint))


def test_a_savepoint_with_states_in_a_store_resumes() -> None:
    savepoint = Savepoint.from_bytes(KEPT.name, KEPT.read_bytes())
    state = MemoryState(shelf=from_json(json.loads(STORED.read_text())))
    check_results(run_to_end(ordinary(state), savepoint))
    numbers = {key: value["numbers"] for key, value in state.items("remember")}
    assert numbers == NUMBERS


def test_a_state_is_read_without_its_classes() -> None:
    state = MemoryState(shelf=from_json(json.loads(STORED.read_text())))
    entries = dict(state.items("remember"))
    assert entries.keys() == NUMBERS.keys()
    for key, value in entries.items():
        numbers = value["numbers"]
        assert value["seen"] == Counter(str(number % 3) for number in numbers)
        assert value["colors"].keys() == {"RED", "BLUE"}
        assert numbers < NUMBERS[key]


def test_what_is_stored_is_what_was_stored() -> None:
    """A run of today stores the same texts under the same keys, so that the release before can read
    them. States that are listed here have a new form, which the release before cannot read."""
    state = MemoryState()
    run_until_stop(ordinary(state))
    expected = from_json(json.loads(STORED.read_text()))
    stored = from_json(json.loads(json.dumps(to_json(state.shelf))))
    assert stored.values.keys() == expected.values.keys()
    for home, values in expected.values.items():
        if home.state not in NEW_FORMS:
            assert with_ranks(stored.values[home]) == with_ranks(values), home
    assert {home.state for home in expected.values} >= NEW_FORMS


# The number of a write, which is in front of each text, and the drawn number of a process.
DRAWN = re.compile(r"(?<=^\[)\d+(?=,)|\b\d{9,10}\b")


def with_ranks(texts: Mapping[str, str]) -> dict[str, str]:
    """Stored texts, with ranks instead of these numbers: they depend on how many records a task
    takes at once."""
    numbers = sorted({int(number) for text in texts.values() for number in DRAWN.findall(text)})
    ranks = {str(number): str(rank) for rank, number in enumerate(numbers)}
    return {key: DRAWN.sub(lambda drawn: ranks[drawn[0]], text) for key, text in texts.items()}


# Joins have a row for each record, windows whose contents grow one for the rows of a batch.
NEW_FORMS = {"inner", "outer", "collected", "counted"}


@pytest.mark.parametrize("kind", KINDS)
def test_states_of_batches_in_a_file_are_continued(kind: StateKind, tmp_path: Path) -> None:
    load(tmp_path, BATCHES[kind].read_text())
    state, progress = states_in(tmp_path, kind), InSqlite(tmp_path / PROGRESS)
    assert 0 < sum(counted for counted, _ in dict(state("totals").items()).values()) < 120
    run_to_end(in_batches(state, progress), None)
    totals = {key: [len(numbers), sum(numbers)] for key, numbers in NUMBERS.items()}
    assert dict(state("totals").items()) == totals
    if kind is StateKind.OPAQUE:
        entries = state("remembered").items()
        assert {key: value["numbers"] for key, value in entries} == NUMBERS
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    run_to_end(in_batches(states_in(fresh, kind), InSqlite(fresh / PROGRESS)), None)
    for name in ("sums", "panes-rows", "collected-rows", "counted-rows"):
        assert dict(state(name).items()) == dict(states_in(fresh, kind)(name).items()), name


@pytest.mark.parametrize("kind", KINDS)
def test_what_batches_store_in_a_file_is_what_they_stored(kind: StateKind, tmp_path: Path) -> None:
    run_until_stop(in_batches(states_in(tmp_path, kind), InSqlite(tmp_path / PROGRESS)))
    actual, expected = shown(dump(tmp_path)), shown(BATCHES[kind].read_text())
    for name in LEFT_OUT:
        del actual[name], expected[name]
    assert actual == expected


# Windows have a row for each group and pane; of sums, the last batch is written or not yet.
LEFT_OUT = [f'INSERT INTO "{name}"' for name in ("panes", "collected", "counted", "sums")]


def shown(text: str) -> dict[str, list[str]]:
    """The values of each state in a dump, without the marks, which name the numbering of a run."""
    inserts: dict[str, list[str]] = {}
    for line in text.split("\f")[0].splitlines():
        if line.startswith("INSERT INTO ") and "sunshower_marks" not in line:
            inserts.setdefault(line.split(" VALUES", 1)[0], []).append(line)
    return {name: sorted(lines) for name, lines in inserts.items()}


def test_the_texts_of_a_store_have_the_parts_of_all_tasks() -> None:
    shelf: MemoryShelf = from_json(json.loads(STORED.read_text()))
    assert {home.task for home in shelf.values if home.state == "remember"} == {0, 1}
    assert Home("outer", 0) in shelf.values
