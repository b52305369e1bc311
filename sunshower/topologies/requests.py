"""A stream of requests: values that callers send, and the rows that answer each.

    requests = topology.requests("words", type=Word)
    requests.group_by("word").process(look_up).answer()

Storm: org.apache.storm.drpc.DRPCSpout, ReturnResults.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from sunshower.arguments import COUNT
from sunshower.errors import RequestFailed, RequestRefused, TopologyError, user_errors
from sunshower.record_types import hints_of, is_record
from sunshower.records import Schema, record_class
from sunshower.texts import describe
from sunshower.topologies.components import DEFAULT, Context, Spout
from sunshower.topologies.graph import Component, Graph, Level, StreamSpec
from sunshower.topologies.retry import Retry

ROWS_MAX = 10_000  # of one answer
_LOOK_S = 1.0  # how often to look for requests that nobody waits for


@dataclass(frozen=True)
class Request:
    """A request, as its caller sends it again and again until it has the answer."""

    id: str
    value: Any  # the fields of the record, or the value of its only field
    left_s: float  # for which the caller still waits


class TypedText(str):
    """The value of a request as typed on a command line: JSON, or the text of the only field."""

    __slots__ = ()


@dataclass(frozen=True)
class Reply:
    """The end of a request: its rows, or why there are none."""

    rows: list[Any] = field(default_factory=list)
    error: RequestFailed | RequestRefused | None = None


class RequestProgress(Enum):
    """How far a request is that has no reply yet."""

    ABSENT = "its task does not run at the moment"
    WAITS = "it waits until the spout may emit it"
    RUNS = "its tuple tree is not complete"


@dataclass(slots=True)
class _Open:
    """A request without a reply."""

    record: Any
    ends_s: float  # no caller waits after this time
    tell: Callable[[Reply | RequestProgress, float], None]
    is_emitted: bool = False
    rows: dict[int, list[Any]] = field(default_factory=dict)  # root → the rows of this attempt


class Requests(Spout[Any]):
    """The requests of one topology that are not answered. They are lost with their process: a
    caller sends its request again until it has the answer."""

    def __init__(self, name: str, schema: Schema, pending_max: int) -> None:
        self.name, self.schema, self.pending_max = name, schema, pending_max
        self.wake: Callable[[], None] = lambda: None  # a request waits
        self.ends = False  # no further requests come
        self._open: dict[str, _Open] = {}
        self._waiting: deque[str] = deque()
        self._look_s = 0.0

    def open(self, context: Context) -> None:
        self._clock = context.clock

    @property
    def room(self) -> int:
        """How many further requests it takes now."""
        return self.pending_max - len(self._open)

    def ask(self, request: Request, tell: Callable[[Reply | RequestProgress, float], None]) -> None:
        """A caller sends a request, perhaps again; `tell` gets how far it is and, at its end, its
        reply; and until when the caller waits for it."""
        now = self._clock.now()
        self._forget_late(now)
        ends_s = now + request.left_s
        if (known := self._open.get(request.id)) is not None:
            known.ends_s = ends_s
            tell(RequestProgress.RUNS if known.is_emitted else RequestProgress.WAITS, ends_s)
            return
        try:
            record = self._record(request.value)
            if self.ends:
                raise RequestRefused(f"{self.name!r} takes no request any more: its topology ends")
            if self.room <= 0:
                raise RequestRefused(
                    f"{self.name!r} has {len(self._open):,} requests that are not answered, as "
                    "many as it may (pending_max): ask later, or fewer at a time"
                )
        except RequestRefused as refusal:
            tell(Reply(error=refusal), ends_s)
            return
        self._open[request.id] = _Open(record, ends_s, tell)
        self._waiting.append(request.id)
        tell(RequestProgress.WAITS, ends_s)
        self.wake()

    def take(self, limit: int) -> list[tuple[str, Any]]:
        """Up to `limit` requests to emit: their ids and records."""
        taken: list[tuple[str, Any]] = []
        while self._waiting and len(taken) < limit:
            if (request := self._open.get(id := self._waiting.popleft())) is not None:
                request.is_emitted = True
                taken.append((id, request.record))
        return taken

    def add(self, id: str, root: int, row: Any) -> None:
        """A row of one attempt at a request. Raises RequestFailed if there are too many."""
        if (request := self._open.get(id)) is not None:
            rows = request.rows.setdefault(root, [])
            if len(rows) >= ROWS_MAX:
                raise RequestFailed(f"an answer may have {ROWS_MAX:,} rows, and this one has more")
            rows.append(row)

    def complete(self, id: str, root: int) -> None:
        if (request := self._open.pop(id, None)) is not None:
            request.tell(Reply(request.rows.get(root, [])), request.ends_s)

    def goes_on(self, id: str, failure: object) -> bool:
        """An attempt has failed. Returns whether to try again; not if the caller has given up, or
        if `failure`, the last one, is given."""
        request = self._open.get(id)
        if request is None or request.ends_s <= self._clock.now():
            return False
        request.rows.clear()
        if failure is None:
            return True
        del self._open[id]
        trace = getattr(failure, "traceback", "").rstrip()
        why = f"a request of {self.name!r} failed: {failure}"
        request.tell(
            Reply(error=RequestFailed(f"{why}\n{trace}" if trace else why)), request.ends_s
        )
        return False

    def stop(self) -> None:
        """Take no request any more, and refuse those that were not emitted."""
        self.ends = True
        for id in self._waiting:
            if (request := self._open.pop(id, None)) is not None:
                refusal = RequestRefused(f"{self.name!r} takes no request: its topology ends")
                request.tell(Reply(error=refusal), request.ends_s)
        self._waiting.clear()

    def figures(self) -> Mapping[str, float]:
        return {"requests": len(self._open)}

    def _forget_late(self, now: float) -> None:
        if now < self._look_s and len(self._open) < self.pending_max:
            return
        self._look_s = now + _LOOK_S
        for id in [id for id, request in self._open.items() if request.ends_s <= now]:
            del self._open[id]
        if len(self._waiting) > len(self._open):
            self._waiting = deque(id for id in self._waiting if id in self._open)

    def _record(self, value: Any) -> Any:
        """The record of a value that `fields_of` has made. Raises RequestRefused."""
        names, kind = self.schema.fields, self.schema.type
        if isinstance(value, TypedText):
            value = self._meant(str(value))
        named, is_row = value, isinstance(value, tuple | list)
        if is_row and len(value) == len(names) and (len(names) > 1 or kind is type(value)):
            named = dict(zip(names, value, strict=True))
        elif not isinstance(value, Mapping):
            named = {names[0]: value} if len(names) == 1 else {}
            if not named:
                raise RequestRefused(self._described(value))
        if kind is tuple and named.keys() == set(names):
            return tuple(named[name] for name in names)
        try:
            if kind is not tuple and (
                isinstance(value, RecordFields) or self.schema.instances is dict
            ):
                return record_class(kind).build_named(named)
            if kind is not tuple:
                names_of = record_class(kind).described.parameters
                return kind(**{names_of.get(name, name): item for name, item in named.items()})
        except user_errors() as error:
            raise RequestRefused(f"{self._described(value)}: {error}") from error
        raise RequestRefused(self._described(value))

    def _meant(self, text: str) -> Any:
        """What a typed text stands for. Raises RequestRefused for what only begins like JSON."""
        names, kind = self.schema.fields, self.schema.type
        hints = {} if kind is tuple else hints_of(kind)
        kinds = [getattr(hint, "__origin__", hint) for hint in map(hints.get, names)]
        if kinds == [str] and not text.startswith("{"):
            return text
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            if text.startswith(("{", "[")):
                raise RequestRefused(f"{self._described(text)}, no JSON: {error}") from error
            return text

    def _described(self, value: Any) -> str:
        shown = describe(value, 200)
        return f"a request of {self.name!r} is {self.schema.name}, and this is {shown}"


def request_spout(
    id: str,
    streams: Mapping[str, StreamSpec],
    pending_max: int,
    retry: Retry | None,
    message_timeout_s: float | None,
    where: str,
) -> Component:
    """The spout of a stream of requests. Raises TopologyError and ConfigError."""
    COUNT.check(f"{where}: pending_max", pending_max)
    retry = Retry(attempts=1) if retry is None else retry
    if not isinstance(retry, Retry) or retry.has_dead_letters:
        raise TopologyError(
            f"{where}: retry is {retry!r}; give Retry(attempts=3) without dead_letters: the caller "
            "of a request has its failure"
        )
    spout = Requests(id, streams[DEFAULT].schema, pending_max)
    component = Component(id, Level.REQUESTS, spout, streams=streams, retry=retry)
    return replace(component, message_timeout_s=message_timeout_s)


def answer_bolt(requests: str) -> Component:
    """The bolt that collects the answers of a stream of requests."""
    return Component(f"{requests}-answers", Level.ANSWERS, _collect, beside=requests)


def check_requests(graph: Graph) -> None:
    """Raise TopologyError for requests that nobody answers, or that cannot be tracked."""
    for spout in graph.spouts:
        where = f"topology {graph.id!r}, requests {spout.id!r}"
        if spout.level is not Level.REQUESTS:
            continue
        if answer_bolt(spout.id).id not in graph.components:
            raise TopologyError(
                f"{where}: they have no answers; end a stream that is made from them with .answer()"
            )
        if not graph.config.tracked:
            raise TopologyError(f"{where}: they must be tracked; leave ackers=0 away")


def _collect(record: Any) -> None:
    """Never called: runtime/tasks/spouts/request_source.py takes the records of this bolt."""


class RecordFields(dict[str, Any]):
    """A record as field → value: its constructor has run."""


def fields_of(value: Any) -> Any:
    """A record as its fields, for a process that may have another class of that name; other values
    as they are."""
    if not is_record(type(value)):
        return value
    known = record_class(type(value))
    if why := known.problem(value):
        raise RequestRefused(f"{describe(value, 200)} cannot be sent: {why}")
    return RecordFields(zip(known.fields, known.values(value), strict=True))
