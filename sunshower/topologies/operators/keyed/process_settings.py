"""Declares keyed states, and `process`, `match` and `connect` with their settings and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypedDict, TypeVar, get_args, get_origin, get_type_hints

from sunshower.arguments import SECONDS, Values, check_names
from sunshower.config import Resources
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.field_types import classes_in
from sunshower.records import ConnectedSchema, Schema
from sunshower.topologies.components import Bolt
from sunshower.topologies.operators.keyed.key_states import KeyList, KeyMap, KeyState
from sunshower.topologies.operators.keyed.keyed_process import AnyKeyState, KeyedProcess
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore, KeyValueState
from sunshower.topologies.operators.keyed.long_values import may_be_long
from sunshower.topologies.operators.keyed.patterns import FindMatches, Pattern
from sunshower.topologies.operators.port import Emit, Rows
from sunshower.topologies.operators.schemas import (
    KEYS,
    check_equal,
    check_equatable,
    code_name,
    keyed_schema,
    match_schema,
)
from sunshower.topologies.operators.stages import (
    AnyStream,
    RecordStage,
    StageRows,
    TotalsSettings,
    begin_stage,
    free_id,
    location,
)
from sunshower.topologies.operators.state_slot import Migration
from sunshower.topologies.operators.states import StateFactory
from sunshower.topologies.operators.steps import RowOperator
from sunshower.topologies.operators.updates import INSTEAD_OF_PROCESS, refuse_updates
from sunshower.topologies.operators.windows.event_times import (
    Ahead,
    TimeField,
    TimeReader,
    Unit,
    declared_time,
)
from sunshower.topologies.operators.windows.ordered_process import OrderedProcess
from sunshower.topologies.operators.windows.window_operator import TimedProcess
from sunshower.topologies.outputs import Columns, Outputs
from sunshower.topologies.signatures import name_of

_VERSION = Values(int, "a whole number", least=1)
_LATE = Values(float, "a number", least=0)


class StateSettings(TypedDict, total=False):
    """The settings of a keyed state.

    - `state`: where states are; None: in the memory of the task, lost with its process
    - `ttl_s`: a state that was not written for so many seconds is absent, and is removed
    - `version`: of the states, 1; a state of another version is refused, or migrated
    - `migrate`: a function (version, value) that makes a state of one of an earlier version, in
      which a record is a dictionary of its fields; called when a task opens its state
    - `renamed`: {"former field": "field"} of the record types in states; None instead of the name:
      what was stored in the former field is dropped
    """

    state: StateFactory | None
    ttl_s: float | None
    version: int
    migrate: Migration | None
    renamed: Mapping[str, str | None]


class OrderedSettings(StateSettings, total=False):
    """The settings of `process` behind `in_order`: those of its states, and of its bolt.

    - `name`: of the bolt and of the state, by which a later run finds it; default: that of the
      function
    - `parallelism`: the number of tasks, 1; another one takes a stored state over
    - `resources`: what each task requests of its node
    """

    name: str | None
    parallelism: int
    resources: Resources


class ProcessSettings(OrderedSettings, total=False):
    """The settings of `process`: those of OrderedSettings, and those of event time.

    - `event_time`: the field with the time of a record, for timers; None: they are by the clock
    - `late`: how much later than a record with a higher time a record may come, 0
    - `zone`: the time zone of event times and timers without one, such as "Europe/Berlin"
    - `ahead`: how far ahead of the clock an event time may be and fire timers; "auto": an hour for
      datetimes; None: as far as it likes
    - `unit`: of event times that are numbers since 1970: "s", "ms", "us" or "ns"
    """

    event_time: str | None
    late: float
    zone: str | None
    ahead: Ahead
    unit: Unit


class EventOrder(NamedTuple):
    """The order in which `in_order` hands records on."""

    time: TimeField
    late: float


class OrderSettings(TypedDict, total=False):
    """The settings of `in_order`.

    - `zone`: the time zone of event times and timers without one, such as "Europe/Berlin"
    - `ahead`: how far ahead of the clock an event time may be and move the watermark; "auto": an
      hour for datetimes; None: as far as it likes
    - `unit`: of event times that are numbers since 1970: "s", "ms", "us" or "ns"
    """

    zone: str | None
    ahead: Ahead
    unit: Unit


def event_order(
    stream: Any, field: str, late: float, settings: OrderSettings, where: str
) -> EventOrder:
    """The declared order of a stream, also of one of batches. Raises TopologyError, and ConfigError
    for a zone."""
    check_names(settings, OrderSettings.__annotations__, where, TopologyError)
    _LATE.check(f"{where}: late", late, TopologyError)
    stream.schema.check_field(field, where)
    refuse_updates(stream.lineage, where, "in_order", INSTEAD_OF_PROCESS)
    return EventOrder(declared_time(field, settings, where), late)


class BoltOptions(Outputs, StateSettings, total=False):
    """The optional arguments of a bolt's declaration; those of a state if its class has one."""


def process_of(
    stream: AnyStream,
    by: Sequence[str],
    function: Any,
    on_timer: Any,
    fields: Columns | None,
    settings: ProcessSettings,
    order: EventOrder | None = None,
) -> StageRows[RecordStage]:
    """Declare the calls of a function of a record and the state of its key, and of `on_timer`, if
    any, of a key and its state. `order`: in which records are handed on; None: as they arrive.
    Returns the rows. Raises TopologyError for settings that cannot be, and RecordMismatch for
    annotations that do not fit."""
    name = code_name(function)
    where = f"{stream}, group_by({', '.join(by)}), process({name})"
    refuse_updates(stream.lineage, where, "process", INSTEAD_OF_PROCESS)
    id = free_id(stream.topology, settings, "process" if name == "lambda" else name, where)
    operator = keyed_process(
        function,
        on_timer,
        id=id,
        reads=stream.schema,
        by=by,
        fields=fields,
        settings=settings,
        where=where,
        order=order,
    )
    rows = begin_stage(stream.topology, id, [stream.fields(*by)], settings)
    return rows.stage.process_by(operator)


def matches_of(
    stream: AnyStream,
    by: Sequence[str],
    order: EventOrder,
    pattern: tuple[Sequence[Any], Any, Any],
    select: Any,
    fields: Columns | None,
    settings: TotalsSettings,
) -> StageRows[RecordStage]:
    """Declare the matches of a pattern, of its (steps, within, skip). Returns what `select` makes
    of them. Raises as process_of."""
    where = location(stream, by, "match")
    check_names(settings, TotalsSettings.__annotations__, where, TopologyError)
    id = free_id(stream.topology, settings, "match", where)
    operator = match_process(
        *(stream.schema, by, order, pattern, select, fields, settings.get("state")), id, where
    )
    rows = begin_stage(stream.topology, id, [stream.fields(*by)], settings)
    return rows.stage.process_by(operator)


def match_process(
    reads: Schema,
    by: Sequence[str],
    order: EventOrder,
    pattern: tuple[Sequence[Any], Any, Any],
    select: Any,
    fields: Columns | None,
    state: StateFactory | None,
    id: str,
    where: str,
) -> OrderedProcess:
    """The operator that finds the matches of a pattern. Raises as process_of."""
    checked, makes = Pattern(*pattern, where), match_schema(select, fields, where)
    store = KeyedStore(state, id, where, (*reads.classes, *makes.classes))
    find = FindMatches(checked, reads, select)
    about: Any = {"hold": checked.within, "steps": [step.shape for step in checked.steps]}
    return ordered(find, find.on_timer, by, reads, makes, store, order, **about)


def keyed_process(
    function: Any,
    on_timer: Any,
    *,
    id: str,
    reads: Schema,
    by: Sequence[str],
    fields: Columns | None,
    settings: ProcessSettings,
    where: str,
    order: EventOrder | None = None,
) -> KeyedProcess:
    """The operator that makes these calls. Raises as process_of."""
    known = ("fields", "on_timer", *ProcessSettings.__annotations__)
    check_names(settings, known, where, TopologyError)
    annotation, makes = keyed_schema(function, reads, fields, where, quiet=on_timer is not None)
    kind, classes = _kind_and_classes(annotation, where)
    if on_timer is not None:
        makes = _with_fired(makes, on_timer, function, annotation, fields, where)
    if order is not None:
        _refuse_times(settings, where)
        store = _store(settings, id, (*classes, *reads.classes, *makes.classes), where)
        process: KeyedProcess = ordered(function, on_timer, by, reads, makes, store, order)
        return _handed(kind, annotation, process)
    times = times_of(reads, settings, where, timed=on_timer is not None)
    if on_timer is None:
        store = _store(settings, id, classes, where)
        process = KeyedProcess(function, by, reads, makes, store)
    else:
        store = _store(settings, id, (*classes, *makes.classes), where)
        process = TimedProcess(function, on_timer, by, reads, makes, store, **times)
    return _handed(kind, annotation, process)


def _with_fired(
    makes: Schema, on_timer: Any, function: Any, annotation: Any, fields: Columns | None, where: str
) -> Schema:
    """The records of a function, or of its `on_timer` if it emits none. Raises RecordMismatch."""
    place = f"{where}, on_timer={code_name(on_timer)}"
    state_type, fired = keyed_schema(on_timer, None, fields, place, quiet=True)
    if state_type not in (Any, annotation):
        raise RecordMismatch(
            f"{place}: its state is {name_of(state_type)}, and that of {code_name(function)} is "
            f"{name_of(annotation)}; annotate both alike"
        )
    if makes.fields and fired.fields:
        check_equal(makes, fired, place)
    return makes if makes.fields else fired


def times_of(
    reads: Schema, settings: Mapping[str, Any], where: str, *, timed: bool
) -> dict[str, Any]:
    """The event time of records, if timers are by it, and how late they may be. Raises
    TopologyError, and ConfigError for a zone."""
    field, late = settings.get("event_time"), settings.get("late", 0.0)
    _LATE.check(f"{where}: late", late, TopologyError)
    time = declared_time(field or "", settings, where)
    has_more = late or time.ahead != "auto" or time.unit
    if not timed and (field is not None or has_more or time.zone):
        raise TopologyError(
            f"{where}: event_time=, late=, ahead= and unit= are for timers, as is zone=; give "
            "on_timer="
        )
    if field is not None:
        reads.check_field(field, where)
    elif has_more:
        name = "late" if late else "unit" if time.unit else "ahead"
        raise TopologyError(
            f"{where}: {name}= needs event_time=, the field with the time of a record"
        )
    return {"event_time": field and time, "late": late, "zone": time.zone}


def ordered(
    function: Any,
    on_timer: Any,
    by: Sequence[str],
    reads: Schema,
    makes: Schema,
    store: KeyedStore,
    order: EventOrder,
    **more: Any,
) -> OrderedProcess:
    """The operator that makes these calls in this order; `more`: as of OrderedProcess."""
    times: Any = {"event_time": order.time, "late": order.late, "zone": order.time.zone}
    return OrderedProcess(function, on_timer, by, reads, makes, store, **times, **more)


def _refuse_times(settings: ProcessSettings, where: str) -> None:
    """Raise TopologyError for a setting that belongs to in_order."""
    for name in ProcessSettings.__annotations__.keys() - OrderedSettings.__annotations__.keys():
        if name in settings:
            raise TopologyError(
                f"{where}: {name}= is of the order in which records come: give it to in_order, "
                'as in .in_order("at", late=10)'
            )


def _handed(kind: type[AnyKeyState], annotation: Any, operator: KeyedProcess) -> KeyedProcess:
    """The operator, which hands states of this kind to its functions."""
    types = get_args(annotation) or (Any,)
    operator.may_be_long = any(map(may_be_long, types))
    if kind is KeyState:
        operator.store.value_type = types[0]
    else:
        operator.kind, operator.store.has_rows = kind, True
    return operator


def bolt_store(code: Any, id: str, settings: StateSettings, where: str) -> KeyedStore | None:
    """The store of a bolt whose class has a keyed state; None for a bolt without one.

    Raises TopologyError for settings of a state that the class does not have.
    """
    kind = code if isinstance(code, type) else type(code)
    known = (*Outputs.__annotations__, *StateSettings.__annotations__)
    check_names(settings, known, where, TopologyError)
    raw = str(getattr(kind, "__annotations__", {}).get("state", ""))
    try:
        annotation = get_type_hints(kind).get("state") if issubclass(kind, Bolt) else None
    except (NameError, TypeError):  # what is imported for type checkers alone
        annotation = None
    is_state = annotation is KeyValueState or get_origin(annotation) is KeyValueState
    if issubclass(kind, Bolt) and not is_state and ("KeyValueState" in raw or "KeyState" in raw):
        raise TopologyError(
            f"{where}: its `state: {raw}` is not the annotation of a keyed state, or names types "
            "that its module does not import; write `state: KeyValueState[str, Visit]`"
        )
    if is_state:
        _, value_type = get_args(annotation) or (Any, Any)
        store = _store(settings, id, _classes_in(value_type, where), where)
        store.value_type = value_type
        return store
    if settings:
        raise TopologyError(
            f"{where}: {min(settings)} is for a Bolt whose class declares a state, with types that "
            "its module imports: `state: KeyValueState[str, Visit]`; a function has one in "
            '.group_by("user").process(function, state=…)'
        )
    return None


def time_of_states(schema: Schema, settings: Mapping[str, Any], where: str) -> TimeField | None:
    """The event time by which states of batches expire; None: they do not, or by the clock. Raises
    TopologyError for settings that do not belong together."""
    names = [name for name in ("event_time", "zone", "ahead", "unit") if name in settings]
    if names and "ttl_s" not in settings:
        raise TopologyError(
            f"{where}: {names[0]}= is for ttl_s=, or on_timer=; give one of them, or leave it out"
        )
    if names and "event_time" not in settings:
        raise TopologyError(f"{where}: {names[0]}= is for event_time=; give that, or leave it out")
    if not names:
        return None
    schema.check_field(settings["event_time"], where)
    return declared_time(settings["event_time"], settings, where)


def _store(
    settings: StateSettings, id: str, classes: Sequence[type[Any]], where: str
) -> KeyedStore:
    ttl_s, version = settings.get("ttl_s"), settings.get("version", 1)
    migrate = settings.get("migrate")
    SECONDS.or_else("none", None).check(f"{where}: ttl_s", ttl_s, TopologyError)
    _VERSION.check(f"{where}: version", version, TopologyError)
    if migrate is not None and not callable(migrate):
        raise TopologyError(f"{where}: migrate is {migrate!r}; it is a function (version, value)")
    renamed: Any = settings.get("renamed", {})
    if not isinstance(renamed, Mapping) or not all(
        isinstance(old, str) and (new is None or isinstance(new, str))
        for old, new in renamed.items()
    ):
        raise TopologyError(
            f"{where}: renamed is {renamed!r}; it has the names of fields, as in "
            'renamed={"former": "now"}'
        )
    store = KeyedStore(
        settings.get("state"),
        id,
        where,
        classes,
        ttl_s=ttl_s,
        version=version,
        migrate=migrate,
        renamed=renamed,
    )
    store.values.check_renamed()
    return store


def _kind_and_classes(
    annotation: Any, where: str
) -> tuple[type[AnyKeyState], tuple[type[Any], ...]]:
    """What a function is handed for a key, and the Enums and record types in the states."""
    kind: Any = get_origin(annotation) or annotation
    if annotation is Any:
        return KeyState, ()
    if kind not in (KeyState, KeyList, KeyMap):
        raise RecordMismatch(
            f"{where}: its second parameter is {name_of(annotation)}; it is the state of a key: "
            f"KeyState[{name_of(annotation)}], or a KeyList[…] or KeyMap[…, …]"
        )
    types = get_args(annotation)
    return kind, tuple(
        dict.fromkeys(kept_class for each in types for kept_class in _classes_in(each, where))
    )


def _classes_in(annotation: Any, where: str) -> tuple[type[Any], ...]:
    is_known = annotation is not Any and not isinstance(annotation, TypeVar)
    return classes_in(annotation, f"{where}: its state") if is_known else ()


# ---- the records of several streams, with one state for each key ---------------------------------

# They go to the task of their key, each as a value of a row:
#
#     orders   ──▶ (key, time, Order)   ──┐
#     payments ──▶ (key, time, Payment) ──┴──▶ function(record, state)
#
# Storm: org.apache.storm.streams.PairStream.coGroupByKey.

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
    times = _times_of_all(inputs, settings, where)
    keys = [f"key-{place}" for place in range(len(by))]
    schemas = tuple(stream.schema for stream, _ in inputs)
    kinds = [kind for schema in schemas for kind in (*schema.own_class, *schema.classes)]
    classes = dict.fromkeys(kinds)
    rows = ConnectedSchema((*keys, _TIME, _RECORD), tuple, tuple(classes), schemas)
    all_settings: Any = {**settings, **({"event_time": _TIME} if times else {})}
    operator = keyed_process(
        function,
        on_timer,
        id=id,
        reads=rows,
        by=keys,
        fields=fields,
        settings=all_settings,
        where=where,
    )
    divides = []
    each: Sequence[TimeField | None] = times or [None] * len(inputs)
    for (stream, key), time in zip(inputs, each, strict=True):
        reader = None if time is None else time.reader(stream.schema)
        divides.append(partial(ConnectedInput, stream.schema, key, reader))
    return DeclaredProcess(operator, keys, divides, times)


def _times_of_all(
    inputs: Sequence[Input], settings: ConnectedSettings, where: str
) -> list[TimeField]:
    """The event time of each stream; none if timers are by the clock. Raises TopologyError, and
    ConfigError for a zone."""
    field_names = settings.get("event_time")
    if field_names is None:
        return []
    KEYS.check(f"{where}: event_time", field_names, TopologyError)
    names = [field_names] * len(inputs) if isinstance(field_names, str) else [*field_names]
    if len(names) != len(inputs):
        raise TopologyError(
            f"{where}: event_time has {len(names)} fields for {len(inputs)} streams; give one for "
            "each, or one name that all have"
        )
    for (stream, _), field in zip(inputs, names, strict=True):
        stream.schema.check_field(field, where)
    return [declared_time(field, settings, where) for field in names]
