"""Reads and writes a history as JSON lines: one for each event, and a last one if it is whole.

    {"t": 1.234567, "what": "emitted", "task": "numbers[0]", "message": 1, "root": …, "attempt": 1}
    {"t": 1.234571, "what": "sent", "task": "numbers[0]", "root": …, "edge": …, "target": "sink[1]"}
    {"t": 1.301, "what": "begun", "fault": "kill relay[0]"}
    {"t": 9.87, "what": "over"}

`t`: seconds from the start of the run. Roots and edges have 16 hexadecimal digits.

    emitted                      message root attempt, and id if the message's id is another
    completed                    message root attempt
    failed                       message root attempt cause
    dead                         message
    sent                         root edge target
    delivered, acked             root edge
    refused                      root edge cause
    wrote                        key value
    noted                        event facts
    started                      worker life, and spouts: the names (older files have none)
    begun, ended                 fault
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NoReturn, TypeAlias

import numpy as np

from sunshower.errors import ExperimentError
from sunshower.experiments.evidence.event_history import History
from sunshower.runtime.events.event_log import NO_TASK, NOTHING, Entry, What
from sunshower.runtime.tracking.ids import NO_IDS
from sunshower.texts import json_of

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
                    self._wrong(f"this is no JSON: {line.strip()[:60]!r}")
                break
            over = isinstance(fields, dict) and fields.get("what") == OVER
            if not over:
                self._check(fields)
                yield {**fields, "line": number}
        if not over:
            self.cut = f"{self._name} breaks off at line {self._number}"

    def _check(self, fields: Any) -> None:
        if not isinstance(fields, dict) or fields.get("what") not in _NAMES:
            self._wrong(f"no event; each has a what, one of: {', '.join(_NAMES)}, {OVER}")
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
