"""IdleNote and IdleBackoff: the master pauses while the emitters of a spout have no rows."""

from __future__ import annotations

import pytest

from sunshower.state.tree import MemoryForest, MemoryTree
from sunshower.trident.tasks.emitter_runner import EMPTY_TIMES, IdleBackoff, IdleNote, idle_path


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree(MemoryForest())


def notes(tree: MemoryTree) -> list[IdleNote]:
    return [IdleNote(tree, f"{idle_path('/t', 'words')}/{index}") for index in range(2)]


def empty(note: IdleNote, times: int = EMPTY_TIMES) -> None:
    for _ in range(times):
        note.emitted(0)


def test_the_master_pauses_longer_each_time_while_no_task_has_rows(tree: MemoryTree) -> None:
    first, second = notes(tree)
    backoff = IdleBackoff(tree, "/t", {"words": 2})
    empty(first)
    empty(second, EMPTY_TIMES - 1)
    assert backoff.seconds() == 0.0
    empty(second)
    waits = [backoff.seconds() for _ in range(7)]
    assert waits == [0.01, 0.02, 0.04, 0.08, 0.16, 0.2, 0.2]
    second.emitted(1)
    assert backoff.seconds() == 0.0


def test_the_master_does_not_pause_while_one_of_several_spouts_has_rows(tree: MemoryTree) -> None:
    for note in notes(tree):
        empty(note)
    assert IdleBackoff(tree, "/t", {"words": 2, "others": 1}).seconds() == 0.0


def test_the_first_rows_of_a_new_life_remove_the_note_of_the_former_one(tree: MemoryTree) -> None:
    empty(notes(tree)[0])
    assert tree.children(idle_path("/t", "words")) == ["0"]
    notes(tree)[0].emitted(5)
    assert tree.children(idle_path("/t", "words")) == []
