"""Declares `connect`; separate because streams.py is about what users call, not how rows travel.

The records of several streams go to the task of their key, each as a value of a row, and one
function is called with each record and the state of its key:

    orders   ──▶ (key, time, Order)   ──┐
    payments ──▶ (key, time, Payment) ──┴──▶ function(record, state)

Storm: org.apache.storm.streams.PairStream.coGroupByKey.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sunshower.errors import TopologyError
from sunshower.records import ConnectedSchema, Schema
from sunshower.topologies.operators.keyed.process_settings import ProcessSettings, keyed_process
from sunshower.topologies.operators.port import Emit, Rows
from sunshower.topologies.operators.schemas import KEYS, check_equatable, code_name
from sunshower.topologies.operators.stages import (
    AnyStream,
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
    """A stream, and the fields of its key."""

    stream: AnyStream
    by: tuple[str, ...]


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
    (first, by), *others = inputs
    name = code_name(function)
    where = f"{first}, connect, process({name})"
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
    id = free_id(first.topology, settings, "process" if name == "lambda" else name, where)
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
    arriving = []
    for number, (stream, key) in enumerate(inputs):
        reader = times[number].reader(stream.schema) if times else None
        divide = ConnectedInput(stream.schema, key, reader)
        arriving.append(stream.then(f"{id}-input-{number + 1}", divide, rows).fields(*keys))
    rows_of_calls = begin_stage(first.topology, id, arriving, settings).stage.process_by(operator)
    if times and (window := rows_of_calls.stage.window) is not None:
        window.fields = times
    return rows_of_calls


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
