"""The history of one run as numpy columns, for checkers and reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from sunshower.errors import ExperimentError
from sunshower.runtime.events.event_log import NO_TASK, NOTHING, Entry, What
from sunshower.runtime.tracking.ids import I64, NO_IDS, U64
from sunshower.texts import json_of

F64 = NDArray[np.float64]
NumberT = TypeVar("NumberT", np.float64, np.int64)
_NUMBER_BITS = 44
_NUMBER_MASK = (1 << _NUMBER_BITS) - 1
_SLOT_AT, _OFFSET_BITS = 48, 28
_FOLDED = 1 << (_NUMBER_BITS - 1)  # apart from the offsets of slot 0, which stay as they are
# Entries without columns.
_SINGLE = frozenset({What.WROTE, What.NOTED, What.STARTED, What.BEGUN, What.ENDED})
_ROOTED = frozenset(What) - _SINGLE - {What.DEAD}
_COUNTED = frozenset({What.EMITTED, What.COMPLETED, What.FAILED})  # those with attempts
_AT, _TASK = attrgetter("at_s"), attrgetter("task")
_ROOTS, _VALUES, _ATTEMPTS = attrgetter("roots"), attrgetter("values"), attrgetter("attempts")


@dataclass(frozen=True)
class EventRows:
    """The events of one kind, one row for each tuple, in the order of the history.

    `at_s`, `order` and `tasks` have shape (n,); so do the other columns if the kind has them (see
    runtime/events/event_log.py), else they are empty.
    """

    entries: Sequence[Entry]
    counts: I64  # rows of each entry
    at_s: F64  # from the start of the run
    order: I64  # the position of the row's entry in the whole history
    tasks: I64
    roots: U64
    values: U64 | I64  # message numbers, or edges
    attempts: I64

    def __len__(self) -> int:
        return len(self.at_s)

    @cached_property
    def messages(self) -> I64:
        """One number for each pair of task and message number."""
        return message_keys(self.tasks, self.values.view(np.int64))

    @cached_property
    def details(self) -> list[Any]:
        """The detail of each row: a cause, a target task, (key, value), or a description."""
        of_rows: list[Any] = []
        for entry, count in zip(self.entries, self.counts.tolist(), strict=True):
            each = entry.what is What.FAILED or entry.what is What.EMITTED
            of_rows.extend(entry.detail if each and entry.detail else [entry.detail] * count)
        return of_rows

    @cached_property
    def targets(self) -> I64:
        """The target task of each edge; only of SENT."""
        return np.repeat(np.array([e.detail for e in self.entries], np.int64), self.counts)


@dataclass(frozen=True)
class Band:
    """One fault on the time line."""

    words: str
    begun_s: float  # from the start of the run
    ended_s: float | None  # None: the history ends before


@dataclass(frozen=True)
class Accounts:
    """One row for each message that was ever emitted; every array has shape (n,)."""

    messages: I64  # ascending; see message_keys
    emitted_s: F64  # the first time, from the start of the run
    completed_s: F64  # the first time; infinite: never
    emits: I64  # number of emits

    @property
    def open(self) -> I64:
        """The messages that were never completed."""
        return self.messages[np.isinf(self.completed_s)]

    def touched(self, from_s: float, to_s: float, lost: I64, but: I64) -> F64:
        """Return when messages were completed that were open between `from_s` and `to_s`, or are in
        `lost`, and are not in `but`; infinite for those that never were."""
        open_then = (self.emitted_s <= to_s) | np.isin(self.messages, lost)
        open_then &= ~np.isin(self.messages, but)
        return self.completed_s[open_then & (self.completed_s > from_s)]


class History:
    """Every entry of one run, sorted by time.

    `tasks`: task id → its name, such as relay[0]. `begun_s`: when the run began, on the clock of
    the entries. `cut`: why the history is known to be incomplete.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        tasks: Mapping[int, str],
        begun_s: float = 0.0,
        cut: str | None = None,
    ) -> None:
        self.entries: tuple[Entry, ...] = tuple(sorted(entries, key=_AT))
        self.tasks = tasks
        self.begun_s = begun_s
        self.cut = cut
        self._rows: dict[What, EventRows] = {}

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def seconds(self) -> float:
        """The time of the last event, from the start of the run."""
        return self.entries[-1].at_s - self.begun_s if self.entries else 0.0

    def rows(self, what: What) -> EventRows:
        """Return the events of one kind."""
        if what not in self._rows:
            self._rows[what] = self._gather(what)
        return self._rows[what]

    @cached_property
    def faults(self) -> tuple[Band, ...]:
        """Every fault, in the order in which they began."""
        ends: dict[str, list[float]] = {}
        ended = self.rows(What.ENDED)
        for words, at_s in zip(ended.details, ended.at_s.tolist(), strict=True):
            ends.setdefault(words, []).append(at_s)
        begun = self.rows(What.BEGUN)
        bands: list[Band] = []
        for words, at_s in zip(begun.details, begun.at_s.tolist(), strict=True):
            mine = ends.get(words)
            bands.append(Band(words, at_s, mine.pop(0) if mine else None))
        return tuple(bands)

    @cached_property
    def accounts(self) -> Accounts:
        """The emits and the completion of each message."""
        emitted, completed = self.rows(What.EMITTED), self.rows(What.COMPLETED)
        messages, firsts, emits = np.unique(emitted.messages, return_index=True, return_counts=True)
        completed_s = lookup(completed.messages, completed.at_s, messages, np.inf)
        return Accounts(messages, emitted.at_s[firsts], completed_s, emits)

    def name(self, task: int) -> str:
        """Return the name of a task."""
        return self.tasks.get(task, f"task {task}")

    @cached_property
    def _by_what(self) -> list[tuple[list[Entry], list[int]]]:
        """For each kind, its entries and their positions in the history."""
        of_kind: list[tuple[list[Entry], list[int]]] = [([], []) for _ in range(max(What) + 1)]
        for place, entry in enumerate(self.entries):
            entries, places = of_kind[entry.what]
            entries.append(entry)
            places.append(place)
        return of_kind

    def _gather(self, what: What) -> EventRows:
        entries, places = self._by_what[what]
        count = len(entries)
        values = list(map(_VALUES, entries))
        sizes = repeat(1, count) if what in _SINGLE else map(len, values)
        counts = np.fromiter(sizes, np.int64, count)
        at_s = np.fromiter(map(_AT, entries), np.float64, count)
        at_s -= self.begun_s
        rooted, numbered = what in _ROOTED, what in _COUNTED
        attempts = map(_ATTEMPTS, entries)
        return EventRows(
            entries=entries,
            counts=counts,
            at_s=np.repeat(at_s, counts),
            order=np.repeat(np.array(places, np.int64), counts),
            tasks=np.repeat(np.fromiter(map(_TASK, entries), np.int64, count), counts),
            roots=np.concatenate(list(map(_ROOTS, entries))) if rooted and count else NO_IDS,
            values=np.concatenate(values) if count and what not in _SINGLE else NOTHING,
            attempts=np.concatenate(list(attempts)) if numbered and count else NOTHING,
        )


def message_keys(tasks: I64, numbers: I64) -> I64:
    """Return one number for each pair of task and message number.

    Numbers of a log may be slot << 48 | offset: of slots other than 0, 28 bits of the
    offset count.
    """
    if np.max(numbers, initial=0) > _NUMBER_MASK:
        folded = (numbers >> _SLOT_AT << _OFFSET_BITS) | (numbers & ((1 << _OFFSET_BITS) - 1))
        numbers = np.where(numbers > _NUMBER_MASK, folded | _FOLDED, numbers)
    return (tasks << _NUMBER_BITS) + numbers


def tasks_of(messages: I64) -> I64:
    """Return the task of each message key."""
    return messages >> _NUMBER_BITS


def numbers_of(messages: I64) -> I64:
    """Return the message number of each message key."""
    return messages & _NUMBER_MASK


def task_and_number(message: int) -> tuple[int, int]:
    """Return (task, message number) of a message key."""
    return message >> _NUMBER_BITS, message & _NUMBER_MASK


def is_repeat(keys: U64 | I64) -> NDArray[np.bool_]:
    """Return which keys repeat an earlier one: shape (n,)."""
    repeats = np.ones(len(keys), np.bool_)
    repeats[np.unique(keys, return_index=True)[1]] = False
    return repeats


def lookup(
    keys: U64 | I64, values: NDArray[NumberT], wanted: U64 | I64, missing: float
) -> NDArray[NumberT]:
    """Return the first value of each wanted key, or `missing` if it is not in `keys`."""
    known, at = np.unique(keys, return_index=True)
    if not len(known):
        return np.full(len(wanted), missing, values.dtype)
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[places] == wanted, values[at[places]], values.dtype.type(missing))


# ---- history lines -------------------------------------------------------------------------------
# Reads and writes a history as JSON lines: one for each event, and a last one if it is whole.
#
#   {"t": 1.234567, "what": "emitted", "task": "numbers[0]", "message": 1, "root": …, "attempt": 1}
#   {"t": 1.234571, "what": "sent", "task": "numbers[0]", "root": …, "edge": …, "target": "sink[1]"}
#   {"t": 1.301, "what": "begun", "fault": "kill relay[0]"}  # noqa: ERA001
#   {"t": 9.87, "what": "over"}  # noqa: ERA001
#
# `t`: seconds from the start of the run. Roots and edges have 16 hexadecimal digits. `_NEEDED` has
# the other fields of each kind. Besides, `emitted` has an id, if that is not the message's number,
# and `started` the names of spouts, except in older files.

Fields: TypeAlias = dict[str, Any]
OVER = "over"
_NAMES = {what.name.lower(): what for what in What}
_MESSAGES = {What.EMITTED, What.COMPLETED, What.FAILED, What.DEAD}
_EDGES = {What.SENT, What.DELIVERED, What.ACKED, What.REFUSED}
_PAIRS = {What.WROTE: ("key", "value"), What.NOTED: ("event", "facts")}
_NEEDED: dict[What, tuple[str, ...]] = {
    What.EMITTED: ("task", "message", "root", "attempt"),
    What.COMPLETED: ("task", "message", "root", "attempt"),
    What.FAILED: ("task", "message", "root", "attempt", "cause"),
    What.DEAD: ("task", "message"),
    What.SENT: ("task", "root", "edge", "target"),
    What.DELIVERED: ("task", "root", "edge"),
    What.ACKED: ("task", "root", "edge"),
    What.REFUSED: ("task", "root", "edge", "cause"),
    What.WROTE: ("task", "key", "value"),
    What.NOTED: ("task", "event", "facts"),
    What.STARTED: ("worker", "life"),
    What.BEGUN: ("fault",),
    What.ENDED: ("fault",),
}
_KINDS: dict[str, tuple[type, ...]] = {
    "t": (int, float),
    **dict.fromkeys(("message", "attempt", "worker", "life"), (int,)),
    **dict.fromkeys(("task", "target", "fault", "cause", "event"), (str,)),
    "facts": (dict,),
}


def to_lines(history: History) -> Iterator[str]:
    """Yield the lines of a file, with line ends. A cut history has no last line."""
    for entry in history.entries:
        head: Fields = {
            "t": round(entry.at_s - history.begun_s, 6),
            "what": entry.what.name.lower(),
        }
        if entry.task != NO_TASK:
            head["task"] = history.name(entry.task)
        for fields in _rows(entry, history):
            yield json_of({**head, **fields}) + "\n"
    if history.cut is None:
        yield json.dumps({"t": round(history.seconds, 6), "what": OVER}) + "\n"


def from_lines(
    lines: Iterable[str], name: str = "history.jsonl", tasks: Mapping[int, str] | None = None
) -> History:
    """Read a history from the lines of a file, with line ends.

    `tasks`: the plan's names; without them, ids are numbered in the order of appearance. Of a
    truncated file the whole lines are read, and `History.cut` says where it ends. Raises
    ExperimentError, with `name` and the line number, for any other invalid line.
    """
    ids = {task: id for id, task in (tasks or {}).items()}
    reader = _Reader(name)
    entries = [_entry(list(rows), ids) for _, rows in groupby(reader.read(lines), key=_entry_key)]
    return History(entries, {id: task for task, id in ids.items()}, cut=reader.cut)


def _rows(entry: Entry, history: History) -> Iterator[Fields]:
    """Yield the fields of an entry's lines, without time, kind and task."""
    what, detail = entry.what, entry.detail
    if what in _PAIRS:
        yield dict(zip(_PAIRS[what], detail, strict=True))
    elif what is What.STARTED:
        spouts = [history.name(task) for task in entry.values.tolist()]
        yield {"worker": detail[0], "life": detail[1], "spouts": spouts}
    elif what in (What.BEGUN, What.ENDED):
        yield {"fault": detail}
    elif what is What.DEAD:
        yield from ({"message": number} for number in entry.values.tolist())
    elif what in _EDGES:
        last: Fields = {}
        if what is What.SENT:
            last = {"target": history.name(detail)}
        elif what is What.REFUSED:
            last = {"cause": str(detail)}
        for root, edge in zip(entry.roots.tolist(), entry.values.tolist(), strict=True):
            yield {"root": f"{root:016x}", "edge": f"{edge:016x}", **last}
    else:
        columns = (entry.values.tolist(), entry.roots.tolist(), entry.attempts.tolist())
        for index, (number, root, attempt) in enumerate(zip(*columns, strict=True)):
            fields = {"message": number, "root": f"{root:016x}", "attempt": attempt}
            if what is What.FAILED:
                fields["cause"] = str(detail[index])
            elif detail is not None:
                fields["id"] = detail[index]
            yield fields


class _Reader:
    """Reads and checks lines until the file ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._number = 0
        self.cut: str | None = None

    def read(self, lines: Iterable[str]) -> Iterator[Fields]:
        """Yield the fields of every whole line, with its number as `line`."""
        over = False
        for number, line in enumerate(lines, start=1):
            self._number = number
            try:
                fields = json.loads(line)
            except ValueError:
                if line.endswith("\n"):
                    self._wrong(f"this is not valid JSON: {line.strip()[:60]!r}")
                break
            over = isinstance(fields, dict) and fields.get("what") == OVER
            if not over:
                self._check(fields)
                yield {**fields, "line": number}
        if not over:
            self.cut = f"{self._name} breaks off at line {self._number}"

    def _check(self, fields: Any) -> None:
        if not isinstance(fields, dict) or fields.get("what") not in _NAMES:
            self._wrong(
                f"this is not a valid event; each has a what, one of: {', '.join(_NAMES)}, {OVER}"
            )
        for name in ("t", *_NEEDED[_NAMES[fields["what"]]]):
            if name not in fields:
                self._wrong(f"{fields['what']} without {name!r}")
            value = fields[name]
            if name in ("root", "edge"):
                if not _is_id(value):
                    self._wrong(f"{name!r} is {value!r}; it has 16 hexadecimal digits")
            elif not isinstance(value, _KINDS.get(name, (object,))):
                self._wrong(f"{name!r} is {value!r}, of a wrong type")

    def _wrong(self, why: str) -> NoReturn:
        raise ExperimentError(f"{self._name}, line {self._number}: {why}")


def _is_id(value: Any) -> bool:
    try:
        return len(value) == 16 and int(value, 16) >= 0
    except (TypeError, ValueError):
        return False


def _entry_key(fields: Fields) -> tuple[Any, ...]:
    """Return the key of a line: adjacent lines with the same key form one entry."""
    what = _NAMES[fields["what"]]
    place = (fields["t"], what, fields.get("task"), fields.get("target"), "id" in fields)
    if what not in _MESSAGES | _EDGES:
        return (*place, fields["line"])
    return (*place, fields["cause"] if what is What.REFUSED else None)


def _entry(rows: list[Fields], ids: dict[str, int]) -> Entry:
    first = rows[0]
    what = _NAMES[first["what"]]
    task = _id(first["task"], ids) if "task" in first else NO_TASK
    roots, values, attempts = NO_IDS, NOTHING, NOTHING
    detail: Any = None
    if what in _MESSAGES:
        values = np.array([fields["message"] for fields in rows], np.int64)
    elif what in _EDGES:
        values = np.array([int(fields["edge"], 16) for fields in rows], np.uint64)
    if "root" in first:
        roots = np.array([int(fields["root"], 16) for fields in rows], np.uint64)
    if "attempt" in first:
        attempts = np.array([fields["attempt"] for fields in rows], np.int64)
    match what:
        case What.SENT:
            detail = _id(first["target"], ids)
        case What.REFUSED:
            detail = first["cause"]
        case What.FAILED:
            detail = [fields["cause"] for fields in rows]
        case What.EMITTED if "id" in first:
            detail = [_frozen(fields["id"]) for fields in rows]
        case What.WROTE | What.NOTED:
            detail = tuple(_frozen(first[name]) for name in _PAIRS[what])
        case What.STARTED:
            detail = (first["worker"], first["life"])
            values = np.array([_id(name, ids) for name in first.get("spouts", ())], np.int64)
        case What.BEGUN | What.ENDED:
            detail = first["fault"]
    return Entry(
        at_s=float(first["t"]),
        what=what,
        task=task,
        roots=roots,
        values=values,
        attempts=attempts,
        detail=detail,
    )


def _id(name: str, ids: dict[str, int]) -> int:
    return ids.setdefault(name, max(ids.values(), default=NO_TASK) + 1)


def _frozen(value: Any) -> Any:
    """Return lists as tuples, which JSON does not have."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return value
