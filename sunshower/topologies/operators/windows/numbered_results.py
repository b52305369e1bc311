"""Several results of one window, numbered: each replaces those with lower numbers.

    early     while the window is open, at most each so many seconds of the clock
    final     when it has ended
    update    for a record that is late, but in the time that is allowed
    removed   there is no such window any more: its session has grown, or is part of another one

Stored beside the contents of windows:

    (word, group, place)   the number of the last result, and what follows it
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import groupby
from typing import Any, NamedTuple

from sunshower.records import key_of
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.updates import SHOWN

RESULT_FIELDS = {"kind": str, "number": int}  # of results, behind the window; and their types
NUMBERED = "result"  # begins the keys


class ResultKind(StrEnum):
    """What a result says of its window, in the field `kind`."""

    EARLY = "early"
    FINAL = "final"
    UPDATE = "update"
    REMOVED = "removed"
    LATE = "late"  # of the stream `late`, with the number 0


class ResultStage(StrEnum):
    """What follows the last result of a window."""

    OPEN = "open"  # further early ones, or the final one
    ENDED = "ended"  # nothing, unless a record comes
    CHANGED = "changed"  # a record has come after the end
    GONE = "gone"  # its removal
    FULL = "full"  # the final one, before its end; its records are late from now on
    CLOSED = "closed"  # nothing: that was emitted


class LastResult(NamedTuple):
    """The last result of a window: its number, from 1; 0: there is none."""

    number: int
    stage: ResultStage


_NONE = LastResult(0, ResultStage.OPEN)


class NumberedResults:
    """The last results of windows, in the store of their task. `place`: the last pane of a window,
    or the end of a session."""

    def __init__(self, store: KeyedStore) -> None:
        self._store = store
        self._due: dict[Any, tuple[Any, Any]] = {}  # (group, place) of those that need a result now

    def note(self, group: Any, place: Any, stored: Any) -> None:
        """Note what the store has."""
        self._note(group, place, LastResult(stored[0], ResultStage(stored[1])))

    def get(self, group: Any, place: Any) -> LastResult:
        stored = self._store.get((NUMBERED, group, place))
        return _NONE if stored is None else LastResult(stored[0], ResultStage(stored[1]))

    def put(self, group: Any, place: Any, number: int, stage: ResultStage) -> None:
        self._store.put((NUMBERED, group, place), [number, stage.value])
        self._note(group, place, LastResult(number, stage))

    def next(self, group: Any, place: Any, stage: ResultStage) -> int:
        """The number of the result that is emitted now."""
        number = self.get(group, place).number + 1
        self.put(group, place, number, stage)
        return number

    def remove(self, group: Any, place: Any) -> None:
        self._store.remove((NUMBERED, group, place))
        self._due.pop(key_of((group, place)), None)

    def due(self) -> list[tuple[Any, Any]]:
        """(group, place) of those that need a result now."""
        return [*self._due.values()]

    def _note(self, group: Any, place: Any, result: LastResult) -> None:
        if result.stage in (ResultStage.CHANGED, ResultStage.GONE, ResultStage.FULL):
            self._due[key_of((group, place))] = group, place
        else:
            self._due.pop(key_of((group, place)), None)


def updates_of(
    name: str, width: int, rows: Sequence[Sequence[Any]], records: Sequence[Any]
) -> list[Any]:
    """The updates that results are, see operators/updates.py. `width`: how many values say which
    window it is; `records`: those of the rows."""
    updates, hidden = list[Any](), list[Any]()

    def place(pair: tuple[Sequence[Any], Any]) -> Any:
        row, _ = pair
        return key_of(tuple(row[:width]) if width > 1 else row[0]), row[width + 1]

    for (key, number), pairs in groupby(zip(rows, records, strict=True), place):
        several = [*pairs]
        shown = [record for _, record in several]
        is_removal = several[0][0][width] == ResultKind.REMOVED
        updates.append(((name, key), number, [] if is_removal else shown))
        if is_removal:  # for readers of plain rows
            hidden.append(((name, key), SHOWN, shown))
    return [*updates, *hidden]
