"""What a process is doing, noted where its successor finds it: in memory that outlives it.

    ┌──────┬───────┬───────┬──────────────────┬───── for each spout task ──────────────────┐
    │ head │ roots │ stack │ … one after the other: place, message numbers, generations … │
    └──────┴───────┴───────┴──────────────────────────────────────────────────────────────┘

The buffer is handed in: a shell maps a file (the kernel keeps its pages through SIGKILL and
segmentation faults), a test takes a bytearray. The spouts' pending tables keep their slots'
generations and numbers right here, so a root is found again without a copy of anything.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sunshower.runtime.ids import I64, U64, generations_of, incarnations_of, slots_of
from sunshower.runtime.obituary import Obituary
from sunshower.runtime.pending import Tables
from sunshower.runtime.plan import Plan

ROOTS_MAX = 1 << 14  # noted of one batch: a copy of 128 KB, 7 µs; such a batch takes milliseconds
STACK_MAX = 1 << 16  # bytes; of a longer stack the innermost frames
_HEAD = struct.Struct("<qqqqdqq")  # mark, life, task, roots, since, bytes of stack, spouts
_CALL = struct.Struct("<qqd")  # the middle of it: task, roots, since
_PLACE = struct.Struct("<qqqqq")  # task, incarnation, slots, drawn, owed
_DRAWN = struct.Struct("<qq")  # the end of it
_DRAWN_AT = 24
_CALL_AT, _STACK_AT, _SPOUTS_AT = 16, 40, 48
_MARK = 0x5355_4E02  # "SUN", layout 2
_ROOTS_AT = _HEAD.size
_STACKS_AT = _ROOTS_AT + 8 * ROOTS_MAX
_TABLES_AT = _STACKS_AT + STACK_MAX
_NOBODY = -1
_UNKNOWN = -1  # where nobody has told what is owed
_Table: TypeAlias = tuple[int, int, NDArray[np.uint32], I64, int, int]  # task, incarnation;
# generations, message numbers, by slot; drawn, owed


class Running(NamedTuple):
    """A call of user code that has not returned."""

    task: int
    since_s: float  # on the clock of who noted it


class Recorder:
    """Notes nothing: for a process that nobody succeeds."""

    unwritable: str | None = None  # why no successor will find what is noted; None: it will

    def begin(self, task: int, roots: U64, now: float) -> None:
        """User code of `task` is called at `now`, with records of these trees."""

    def end(self) -> None:
        """It has returned."""

    def running(self) -> Running | None:
        """The call of user code that runs now; None: none does. For another thread."""
        return None

    def testify(self, stack: str) -> None:
        """Note where the call is; the process is about to be ended for it. For another thread."""

    def tables(self, task: int, incarnation: int, slots: int) -> Tables:
        """Where the pending table of a spout task keeps generations and numbers; all 0."""
        return np.zeros(slots, np.uint32), np.zeros(slots, np.int64)

    def drew(self, task: int, drawn: int, owed: int) -> None:
        """A spout task has drawn its first `drawn` records, and no life of it any from `owed` on.
        Called before one of them is emitted."""


class BlackBox(Recorder):
    """Writes into `buffer`, which has `size_of(plan, worker)` bytes, all 0."""

    def __init__(self, buffer: Any, life: int) -> None:
        self._buffer = buffer
        self._roots: U64 = np.frombuffer(buffer, np.uint64, ROOTS_MAX, _ROOTS_AT)
        self._next = _TABLES_AT
        self._places: dict[int, int] = {}  # spout task → where its place is
        _HEAD.pack_into(buffer, 0, _MARK, life, _NOBODY, 0, 0.0, 0, 0)

    @staticmethod
    def size_of(plan: Plan, worker: int) -> int:
        """Bytes that a worker's box takes."""
        spouts = sum(spout.worker == worker for spout in plan.spouts)
        return _TABLES_AT + spouts * (_PLACE.size + _padded(12 * plan.graph.config.spout_slots))

    def begin(self, task: int, roots: U64, now: float) -> None:
        count = min(len(roots), ROOTS_MAX)
        if count:
            self._roots[:count] = roots[:count]
        _CALL.pack_into(self._buffer, _CALL_AT, task, count, now)

    def end(self) -> None:
        _CALL.pack_into(self._buffer, _CALL_AT, _NOBODY, 0, 0.0)

    def tables(self, task: int, incarnation: int, slots: int) -> Tables:
        at = self._next
        if at + _PLACE.size + 12 * slots > len(self._buffer):
            return super().tables(task, incarnation, slots)  # its messages will not be named
        _PLACE.pack_into(self._buffer, at, task, incarnation, slots, 0, _UNKNOWN)
        self._places[task] = at
        at += _PLACE.size
        numbers: I64 = np.frombuffer(self._buffer, np.int64, slots, at)
        generations = np.frombuffer(self._buffer, np.uint32, slots, at + 8 * slots)
        self._next = at + _padded(12 * slots)
        (count,) = struct.unpack_from("<q", self._buffer, _SPOUTS_AT)
        struct.pack_into("<q", self._buffer, _SPOUTS_AT, count + 1)
        return generations, numbers

    def drew(self, task: int, drawn: int, owed: int) -> None:
        if task in self._places:
            _DRAWN.pack_into(self._buffer, self._places[task] + _DRAWN_AT, drawn, owed)

    def running(self) -> Running | None:
        task, _, since_s = _CALL.unpack_from(self._buffer, _CALL_AT)
        return None if task == _NOBODY else Running(task, since_s)

    def testify(self, stack: str) -> None:
        text = stack.encode()[-STACK_MAX:]
        self._buffer[_STACKS_AT : _STACKS_AT + len(text)] = text
        struct.pack_into("<q", self._buffer, _STACK_AT, len(text))


def read(buffer: Any, worker: int) -> Obituary | None:
    """What the process that wrote this box was doing at its end. None: this is no box of ours."""
    if len(buffer) < _TABLES_AT:
        return None
    mark, life, task, count, _, stack, spouts = _HEAD.unpack_from(buffer, 0)
    if mark != _MARK:
        return None
    tables = list(_tables(buffer, spouts))
    drawn = {task: (drawn, owed) for task, *_, drawn, owed in tables if owed != _UNKNOWN}
    if task == _NOBODY:
        return Obituary(worker, life, drawn=drawn)
    roots: U64 = np.frombuffer(buffer, np.uint64, count, _ROOTS_AT)
    text = bytes(buffer[_STACKS_AT : _STACKS_AT + stack]).decode(errors="replace")
    named = dict(_named(tables, roots))
    return Obituary(worker, life, task, roots.tobytes(), text, named, drawn)


def _tables(buffer: Any, spouts: int) -> Iterator[_Table]:
    """Those of the spout tasks of this very process."""
    at = _TABLES_AT
    for _ in range(spouts):
        task, incarnation, slots, drawn, owed = _PLACE.unpack_from(buffer, at)
        at += _PLACE.size
        numbers = np.frombuffer(buffer, np.int64, slots, at)
        generations = np.frombuffer(buffer, np.uint32, slots, at + 8 * slots)
        at += _padded(12 * slots)
        yield task, incarnation, generations, numbers, drawn, owed


def _named(tables: list[_Table], roots: U64) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Spout task → the messages whose trees are among `roots`."""
    for task, incarnation, generations, numbers, *_ in tables:
        mine = roots[incarnations_of(roots) == incarnation]
        mine = mine[generations.take(slots_of(mine)) == generations_of(mine)]
        if len(mine):
            yield task, tuple(np.unique(numbers.take(slots_of(mine))).tolist())


def _padded(size: int) -> int:
    """`size` rounded up: what follows begins at a multiple of 8."""
    return -(-size // 8) * 8
