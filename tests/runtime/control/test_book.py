"""The book of a master: what is written is read again, and a successor goes on from it."""

from __future__ import annotations

from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.events.metrics import Counts
from sunshower.runtime.tasks.user_code import TaskError


def test_book_is_read_as_it_was_written() -> None:
    book = MasterState(
        {0: 3, 7: 1},
        {"split": Counts(emitted=9, acked=4)},
        {5: TaskError("split", 0, 1, "it raised", "OSError", "Traceback …")},
        positions={1: 5},
        drawn={1: 9},
        suspects={1: {7: 2}},
        draining=True,
        error="why",
    )
    assert MasterState.from_bytes(book.to_bytes()) == book
    assert MasterState.from_bytes(MasterState().to_bytes()) == MasterState()
