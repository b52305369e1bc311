"""Declares `connect`; separate because streams.py is about what users call, not how rows travel.

The records of several streams go to the task of their key, each as a value of a row, and one
function is called with each record and the state of its key:

    orders   ──▶ (key, time, Order)   ──┐
    payments ──▶ (key, time, Payment) ──┴──▶ function(record, state)

Storm: org.apache.storm.streams.PairStream.coGroupByKey.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from sunshower.errors import TopologyError
from sunshower.records import ConnectedSchema, Schema
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess
from sunshower.topologies.operators.keyed.process_settings import ProcessSettings, keyed_process
from sunshower.topologies.operators.port import Emit, Rows
from sunshower.topologies.operators.schemas import KEYS, check_equatable, code_name
from sunshower.topologies.operators.stages import (
    RecordStage,
    StageRows,
    begin_stage,
    free_id,
)
from sunshower.topologies.operators.steps import RowOperator
from sunshower.topologies.operators.updates import INSTEAD_OF_PROCESS, refuse_updates
from sunshower.topologies.operators.windows.event_times import (
    TimeField,
    TimeReader,
    declared_time,
)
from sunshower.topologies.outputs import Columns

_TIME, _RECORD = "time-0", "record-0"  # fields of rows, that no record type has


class ConnectedSettings(ProcessSettings, total=False):
    """The settings of `process` behind `connect`: those of ProcessSettings, with one difference.

    - `event_time`: the field with the time of a record, or a list of those of all streams, in their
      order; None: timers are by the clock
    """

    event_time: str | Sequence[str] | None  # type: ignore[misc]


class Input(NamedTuple):
    """A stream, an ordinary one or one of batches, and the fields of its key."""

    stream: Any
    by: tuple[str, ...]


class DeclaredProcess(NamedTuple):
    """A process of several streams whose declaration is right. `keys`: the fields of the key of its
    rows, which the functions of `divides` make of the records of each stream; `times`: the event
    time of each, none if timers are by the clock."""

    operator: KeyedProcess
    keys: Sequence[str]
    divides: Sequence[Callable[[], ConnectedInput]]
    times: Sequence[TimeField]


class ConnectedInput(RowOperator):
    """Emits (fields of the key, event time, record) of each record."""

    ends_lineage = True

    def __init__(self, schema: Schema, by: Sequence[str], reader: TimeReader | None) -> None:
        self._key = [schema.key([name]) for name in by]
        self.reader = reader

    def process(self, batch: Any, source: int, rows: Rows, emit: Emit) -> None:
        emit([keyed_row for row in rows for keyed_row in self.expand(row)])

    def expand(self, row: Any) -> Iterable[Any]:
        time = None if self.reader is None else self.reader.time(row)
        return ((*(get(row) for get in self._key), time, row),)


def connected_process(
    inputs: Sequence[Input],
    function: Any,
    on_timer: Any,
    fields: Columns | None,
    settings: ConnectedSettings,
) -> StageRows[RecordStage]:
    """Declare the calls of a function with the records of several streams. Returns its rows. Raises
    as process_of."""
    first, name = inputs[0].stream, code_name(function)
    where = f"{first}, connect, process({name})"
    id = free_id(first.topology, settings, "process" if name == "lambda" else name, where)
    connection = declared_connection(inputs, function, on_timer, fields, settings, id, where)
    arriving = []
    for number, (stream, _) in enumerate(inputs):
        divide = connection.divides[number]()
        rows = stream.then(f"{id}-input-{number + 1}", divide, connection.operator.reads)
        arriving.append(rows.fields(*connection.keys))
    stage = begin_stage(first.topology, id, arriving, settings).stage
    rows_of_calls = stage.process_by(connection.operator)
    if connection.times and (window := stage.window) is not None:
        window.fields = connection.times
    return rows_of_calls


def declared_connection(
    inputs: Sequence[Input],
    function: Any,
    on_timer: Any,
    fields: Columns | None,
    settings: ConnectedSettings,
    id: str,
    where: str,
) -> DeclaredProcess:
    """The process of several streams, of ordinary ones or of batches. Raises as process_of."""
    (first, by), *others = inputs
    for stream, key in inputs:
        refuse_updates(stream.lineage, where, "process", INSTEAD_OF_PROCESS)
        if stream.schema.type is tuple:
            raise TopologyError(
                f"{where}: {stream} carries plain tuples, {stream.schema.name}, of which the "
                "function would not know where they are from: give them a record type, as in "
                "fields=Order"
            )
        if len(key) != len(by):
            raise TopologyError(
                f"{where}: it groups {by} and {key}, which are not the same number of fields"
            )
    for stream, key in others:
        for ours, theirs in zip(by, key, strict=True):
            check_equatable((first.schema, ours), (stream.schema, theirs), where)
    times = _times_of(inputs, settings, where)
    keys = [f"key-{place}" for place in range(len(by))]
    schemas = tuple(stream.schema for stream, _ in inputs)
    kinds = [kind for schema in schemas for kind in (*schema.own_class, *schema.classes)]
    classes = dict.fromkeys(kinds)
    rows = ConnectedSchema((*keys, _TIME, _RECORD), tuple, tuple(classes), schemas)
    given: Any = {**settings, **({"event_time": _TIME} if times else {})}
    operator = keyed_process(
        function, on_timer, id=id, reads=rows, by=keys, fields=fields, settings=given, where=where
    )
    divides = []
    each: Sequence[TimeField | None] = times or [None] * len(inputs)
    for (stream, key), time in zip(inputs, each, strict=True):
        reader = None if time is None else time.reader(stream.schema)
        divides.append(partial(ConnectedInput, stream.schema, key, reader))
    return DeclaredProcess(operator, keys, divides, times)


def _times_of(inputs: Sequence[Input], settings: ConnectedSettings, where: str) -> list[TimeField]:
    """The event time of each stream; none if timers are by the clock. Raises TopologyError, and
    ConfigError for a zone."""
    given = settings.get("event_time")
    if given is None:
        return []
    KEYS.check(f"{where}: event_time", given, TopologyError)
    names = [given] * len(inputs) if isinstance(given, str) else [*given]
    if len(names) != len(inputs):
        raise TopologyError(
            f"{where}: event_time has {len(names)} fields for {len(inputs)} streams; give one for "
            "each, or one name that all have"
        )
    for (stream, _), field in zip(inputs, names, strict=True):
        stream.schema.check_field(field, where)
    return [declared_time(field, settings, where) for field in names]
