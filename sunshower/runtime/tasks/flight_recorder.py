"""The flight recorder: notes the tuples in execution, in memory that survives the process.

    ┌──────┬───────┬───────┬──────────────────┬───── for each spout task ──────────────────┐
    │ head │ roots │ stack │ … one after the other: entry, message numbers, generations … │
    └──────┴───────┴───────┴──────────────────────────────────────────────────────────────┘

The caller supplies the buffer: the Ray adapter maps a file (the kernel keeps its pages through
SIGKILL and segmentation faults), a test uses a bytearray. `Pending` keeps the generations and
numbers of its slots directly in this buffer, so a root is resolved without any copy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sunshower.failures import Cause, Failure
from sunshower.runtime.plan import Plan
from sunshower.runtime.tracking.ids import I64, U64, generations_of, incarnations_of, slots_of
from sunshower.runtime.tracking.pending import Tables
from sunshower.texts import TRACEBACK_BYTES, utf8

ROOTS_MAX = 1 << 14  # of one batch: a copy of 128 KB, 7 µs; such a batch takes milliseconds
STACK_MAX = TRACEBACK_BYTES  # the innermost frames of a longer stack
_HEAD = struct.Struct("<qqqqdqq")  # mark, life, task, roots, since, bytes of stack, spouts
_CALL = struct.Struct("<qqd")  # the middle of the head: task, roots, since
_PLACE = struct.Struct("<qqqqq")  # task, incarnation, slots, drawn, owed
_DRAWN = struct.Struct("<qq")  # the end of a place
_DRAWN_AT = 24
_CALL_AT, _STACK_AT, _SPOUTS_AT = 16, 40, 48
_MARK = 0x5355_4E03  # "SUN", layout 3
_ROOTS_AT = _HEAD.size
_STACKS_AT = _ROOTS_AT + 8 * ROOTS_MAX
_TABLES_AT = _STACKS_AT + STACK_MAX
_NOBODY = -1
_UNKNOWN = -1  # `owed` was not noted yet
_Table: TypeAlias = tuple[int, int, NDArray[np.uint32], I64, int, int]  # task, incarnation;


# ---- crash report --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CrashReport:
    """Found by the worker's next process; the master passes it on to all workers."""

    worker: int
    life: int  # the one that ended
    task: int | None = None  # whose user code was running; None: none was
    roots: bytes = b""  # of the records passed to it: uint64, little endian
    stack: str = ""  # of the call, if the watchdog ended it because it did not return
    numbers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # of its own spouts, whose
    # `Pending` is lost: spout task → the messages of these roots
    drawn: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # of its own spouts: task →
    # records drawn, and the number from which on no life drew any; the master may know fewer
    silent_s: float = 0.0  # for which its process was silent; it was replaced for that

    @property
    def suspects(self) -> U64:
        """The roots of the records that were being executed."""
        return np.frombuffer(self.roots, np.uint64)

    def fits(self, plan: Plan) -> bool:
        """Whether it can be of a process of this topology. If not, its file was damaged."""
        spouts, tasks = {spout.id for spout in plan.spouts}, {task.id for task in plan.tasks}
        places = [place for pair in self.drawn.values() for place in pair]
        is_known = self.task is None or self.task in tasks
        is_spout = spouts >= self.drawn.keys() | self.numbers.keys()
        return is_known and is_spout and min([self.life, *places]) >= 0

    def failure(self, plan: Plan) -> Failure:
        """The failure of these trees; the process probably died of one of their records."""
        task = next(task for task in plan.tasks if task.id == self.task)
        cause, reason = Cause.ACTOR_DIED, "its process died while executing it"
        if self.stack:
            limit_s, place = plan.graph.config.block_max_s, self.stack.rpartition("\n")[2]
            cause, reason = Cause.BLOCKED, f"it did not return within {limit_s:g} s"
            if place.strip() == place:  # the line of the user is the last one
                reason += f": {place}"
        elif self.silent_s:
            cause, reason = (
                Cause.BLOCKED,
                (
                    f"its process was silent for {self.silent_s:g} s while executing it, and was "
                    "replaced: it was stopped or cut off, or this code holds the interpreter's lock"
                ),
            )
        return Failure(
            cause,
            task.component,
            task.index,
            reason,
            traceback=self.stack,
            worker=self.worker,
        )


# ---- flight recorder -----------------------------------------------------------------------------

# generations, message numbers, by slot; drawn, owed


class Running(NamedTuple):
    """A call of user code that has not returned."""

    task: int
    since_s: float  # on the clock of the process


class Recorder:
    """Notes nothing: for a process without a next life."""

    unwritable: str | None = None  # why the next process finds no report; None: it finds one

    def begin(self, task: int, roots: U64, now: float) -> None:
        """Note that user code of `task` is called at `now`, with records of these trees."""

    def end(self) -> None:
        """Note that the call has returned."""

    def running(self) -> Running | None:
        """The call of user code that runs now, or None. Safe to call from another thread."""
        return None

    def note_stack(self, stack: str) -> None:
        """Note the stack of the call, before the process is killed for it. From another thread."""

    def tables(self, task: int, incarnation: int, slots: int) -> Tables:
        """Arrays in which `Pending` of a spout task keeps generations and numbers; all 0."""
        return np.zeros(slots, np.uint32), np.zeros(slots, np.int64)

    def drew(self, task: int, drawn: int, owed: int) -> None:
        """Note that a spout task has drawn its first `drawn` records, and no life of it any from
        `owed` on. Called before any of them is emitted."""


class FlightRecorder(Recorder):
    """Writes into `buffer`, which has `size_of(plan, worker)` bytes, all 0."""

    def __init__(self, buffer: Any, life: int) -> None:
        self._buffer = buffer
        self._roots: U64 = np.frombuffer(buffer, np.uint64, ROOTS_MAX, _ROOTS_AT)
        self._next = _TABLES_AT
        self._places: dict[int, int] = {}  # spout task → offset of its entry
        _HEAD.pack_into(buffer, 0, _MARK, life, _NOBODY, 0, 0.0, 0, 0)

    @staticmethod
    def size_of(plan: Plan, worker: int) -> int:
        """The size in bytes of a worker's flight recorder."""
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
            return super().tables(task, incarnation, slots)  # full: these messages are not named
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

    def note_stack(self, stack: str) -> None:
        text = utf8(stack)[-STACK_MAX:]
        self._buffer[_STACKS_AT : _STACKS_AT + len(text)] = text
        struct.pack_into("<q", self._buffer, _STACK_AT, len(text))


def read(buffer: Any, worker: int) -> CrashReport | None:
    """The crash report of the process that wrote `buffer`; None if it is no flight recorder."""
    try:
        return _read(buffer, worker)
    except (struct.error, ValueError, IndexError):
        return None


def _read(buffer: Any, worker: int) -> CrashReport | None:
    if len(buffer) < _TABLES_AT:
        return None
    mark, life, task, count, _, stack, spouts = _HEAD.unpack_from(buffer, 0)
    if mark != _MARK or not (0 <= count <= ROOTS_MAX and 0 <= stack <= STACK_MAX):
        return None
    tables = list(_tables(buffer, spouts))
    drawn = {task: (drawn, owed) for task, *_, drawn, owed in tables if owed != _UNKNOWN}
    if task == _NOBODY:
        return CrashReport(worker, life, drawn=drawn)
    roots: U64 = np.frombuffer(buffer, np.uint64, count, _ROOTS_AT)
    text = bytes(buffer[_STACKS_AT : _STACKS_AT + stack]).decode(errors="replace")
    named = dict(_named(tables, roots))
    return CrashReport(worker, life, task, roots.tobytes(), text, named, drawn)


def _tables(buffer: Any, spouts: int) -> Iterator[_Table]:
    """The tables of the spout tasks of this process."""
    at = _TABLES_AT
    for _ in range(spouts):
        task, incarnation, slots, drawn, owed = _PLACE.unpack_from(buffer, at)
        at += _PLACE.size
        if slots < 0:
            raise ValueError("a table of less than no slots")
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
    """`size` rounded up to a multiple of 8, for alignment."""
    return -(-size // 8) * 8
