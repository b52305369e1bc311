"""Declares joins of two streams, and of a stream with a table as of a time: settings and checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
from math import inf
from typing import Any, Literal, NamedTuple, cast

from sunshower.arguments import Values, check_names
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.operators.joins.as_of_join import AsOfJoin
from sunshower.topologies.operators.joins.stream_join import (
    INPUT,
    LEFT,
    RIGHT,
    Age,
    Distance,
    Interval,
    JoinInput,
    PartnerTimes,
    StreamJoin,
    key_names,
)
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.schemas import (
    check_how,
    check_plain_reader,
    joined_keys,
    joined_schema,
    rest_of,
)
from sunshower.topologies.operators.stages import (
    AnyStream,
    RecordStage,
    StageRows,
    TotalsSettings,
    begin_stage,
)
from sunshower.topologies.operators.states import Spread
from sunshower.topologies.operators.updates import INSTEAD_OF_JOIN, refuse_updates
from sunshower.topologies.operators.windows.event_times import (
    Ahead,
    TimeField,
    Unit,
    declared_time,
    zone_named,
)
from sunshower.topologies.outputs import Columns

_PAIRS, _HALVES = ("inner", "left", "outer"), ("semi", "anti")
_TIME = Values(float, "a number", least=0)
_WITHIN = Values(float, "a number, or a pair of numbers,", least=0)
_KEEP = Values(float, "a number of seconds", least=0, above=True).or_else("none", None)
_INSTEAD_AS_OF = "Their rows have no event time; join before the aggregate, or without as_of="
_OF_EVENT_TIME = ("field", "other_field", "late", "zone", "other_zone", "ahead", "unit")


class BoundedSettings(TotalsSettings, total=False):
    """The settings of `join`, without `how`.

    - `other_on`: the key of the other stream, if its fields have other names
    - `within`: partners are at most so far apart, in the unit of `field`; seconds of a datetime. A
      pair (before, after): those of the other stream are at most so much earlier and later than the
      record of this one. A function of a record of this stream: from when to when they are
    - `field`: of both streams: the event time
    - `other_field`: that of the other stream, if it has another name
    - `late`: how much later than a record with a higher time a record may come, 0
    - `zone`: the time zone of event times without one, such as "Europe/Berlin"
    - `other_zone`: that of the other stream, if it is another one
    - `ahead`: how far ahead of the clock an event time may be and move the watermark; "auto": an
      hour for datetimes; None: as far as it likes
    - `unit`: of event times that are numbers since 1970: "s", "ms", "us" or "ns"
    - `keep_s`: instead of `within`: all records are partners, and each waits for so many seconds of
      the clock; None: for ever, so the state has all records
    - `state`: where records wait; None: in the memory of the task, lost with its process
    - `parallelism`: the number of tasks, 1; another one takes a stored state over
    - `name`: of the bolt and of the state, by which a later run finds it; "join"
    - `resources`: what each task requests of its node
    """

    other_on: str | Sequence[str] | None
    within: float | tuple[float, float] | Callable[[Any], tuple[Any, Any]]
    field: str
    other_field: str | None
    late: float
    zone: str | None
    other_zone: str | None
    ahead: Ahead
    unit: Unit
    keep_s: float | None


class JoinSettings(BoundedSettings, total=False):
    """The settings of `join` that makes pairs: those of BoundedSettings, and one more.

    - `how`: "inner"; "left" emits records of this stream that had no partner, too, with None for
      the fields of the other one; "outer" those of both
    """

    how: Literal["inner", "left", "outer"]


class AsOfSettings(TotalsSettings, total=False):
    """The settings of `join` with a table as of a time.

    - `as_of`: the field with the event time of records; that of the changes is `field` of the table
    - `how`: "inner"; "left" emits records without a valid version, too, with None for its fields
    - `valid_for`: a version is valid for so long, in the unit of the fields; seconds of a datetime
    - `late`: how much later than a record with a higher time a record or a change may come, 0
    - `zone`, `other_zone`, `ahead`, `unit`: as of a join of two streams
    - `state`: where records wait, and versions are; that of the table
    - `parallelism`: the number of tasks; that of the table
    - `name`: of the bolt and of the state; that of the table with "-as-of"
    - `resources`: what each task requests of its node
    """

    as_of: str
    how: Literal["inner", "left"]
    valid_for: float
    late: float
    zone: str | None
    other_zone: str | None
    ahead: Ahead
    unit: Unit


class JoinSide(NamedTuple):
    """One of the streams of a join."""

    stream: Any  # an ordinary one, or one of batches
    key: tuple[str, ...]
    time: TimeField | None  # None: the clock
    divide: Callable[[], JoinInput]  # makes rows for the join of its records

    @property
    def rows(self) -> Schema:
        """The rows for the join."""
        return Schema((*key_names(self.key), *INPUT))


class DeclaredJoin(NamedTuple):
    """A join whose declaration is right: its operator, which makes (branch, record), and its
    sides."""

    name: str
    operator: StreamJoin
    left: JoinSide
    right: JoinSide


def joined_streams(
    left: AnyStream,
    right: AnyStream,
    on: str | Sequence[str] | None,
    fields: Columns | None,
    settings: JoinSettings,
    where: str,
) -> StageRows[RecordStage]:
    """Declare the join of two streams. Returns the joined rows. Raises TopologyError."""
    return begin_join(declared_join(left, right, on, fields, settings, where), settings, where)


def begin_join(join: DeclaredJoin, settings: TotalsSettings, where: str) -> StageRows[RecordStage]:
    """The rows of a join of ordinary streams, in a new stage. Raises TopologyError."""
    topology = join.left.stream.topology
    topology.check_new(join.name, settings.get("parallelism", 1), where)
    inputs, times = [], []
    for side, word in ((join.left, "left"), (join.right, "right")):
        rows = side.stream.then(f"{join.name}-{word}", side.divide(), side.rows)
        inputs.append(rows.fields(*key_names(side.key)))
        times.append(side.time)
    rows = begin_stage(topology, join.name, inputs, settings)
    has_times = times != [None, None]
    return rows.stage.join_by(times if has_times else [None], join.operator, join.operator.out)


def declared_join(
    left: Any,
    right: Any,
    on: str | Sequence[str] | None,
    fields: Columns | None,
    settings: JoinSettings,
    where: str,
) -> DeclaredJoin:
    """The join of two streams, of ordinary ones or of batches. Raises TopologyError."""
    names = ("fields", "how", *BoundedSettings.__annotations__)
    check_names(settings, names, where, TopologyError)
    how: str = settings.get("how", "inner")
    check_how(how, (*_PAIRS, *_HALVES), where)
    bounds = _bounds_of(left, settings, how, where)
    times = [] if isinstance(bounds, Age) else _times_of(left, right, settings, where)
    for stream in (left, right):
        refuse_updates(stream.lineage, where, "A join of two streams", INSTEAD_OF_JOIN)
    both = (left.schema, on), (right.schema, settings.get("other_on"))
    if how in _PAIRS:
        ours, theirs, out = joined_schema(*both, how=how, kinds=_PAIRS, fields=fields, where=where)
        order = [*range(len(out.fields))]
    else:
        if fields is not None:
            raise TopologyError(
                f'{where}: a join with how="{how}" emits records of {left.schema.name} as they '
                "are: leave out fields="
            )
        (ours, theirs), out = joined_keys(*both, where), left.schema
        order = [(*ours, *rest_of(out, ours)).index(name) for name in out.fields]
    name_set = settings.get("name")
    name = "join" if name_set is None else name_set
    classes = {*left.schema.classes, *right.schema.classes, *out.classes}
    sides = rest_of(left.schema, ours), rest_of(right.schema, theirs)
    store = KeyedStore(settings.get("state"), name, where, classes, spread=Spread.BY_GROUP)
    operator = StreamJoin(
        *(store, ours, out, bounds, how),
        late=settings.get("late", 0.0) if times else None,
        sides=sides,
        order=order,
    )
    interval: Any = settings["within"] if isinstance(bounds, Interval) else None
    both_times: Sequence[TimeField | None] = times or (None, None)
    return DeclaredJoin(
        name,
        operator,
        join_side(left, ours, LEFT, both_times[LEFT], interval),
        join_side(right, theirs, RIGHT, both_times[RIGHT]),
    )


def join_side(
    stream: Any,
    key: Sequence[str],
    number: int,
    time: TimeField | None,
    interval: Callable[[Any], tuple[Any, Any]] | None = None,
) -> JoinSide:
    """A side of a join, of which it is input `number`. `interval`: as of JoinInput."""

    def divide() -> JoinInput:
        reader = None if time is None else time.reader(stream.schema)
        return JoinInput(stream.schema, key, number, reader, interval)

    return JoinSide(stream, tuple(key), time, divide)


def _bounds_of(left: Any, settings: JoinSettings, how: str, where: str) -> PartnerTimes:
    """Which records are partners. Raises TopologyError."""
    within: Any = settings.get("within")
    if "keep_s" in settings:
        return _without_limit(settings, how, where)
    if within is None or "field" not in settings:
        name = "within" if within is None else "field"
        raise TopologyError(
            f'{where}: give {name}=, as in within=60, field="at": partners are at most 60 apart, '
            "in event time. Without a limit, keep_s=3600 keeps each record for an hour of the "
            "clock, and joins it with all that come meanwhile; keep_s=None keeps each for ever, so "
            "the state grows with the streams"
        )
    if callable(within):
        check_plain_reader(within, left.schema, f"{where}, within")
        return Interval()
    pair = within if isinstance(within, tuple | list) and len(within) == 2 else (within, within)
    for length in pair:
        _WITHIN.check(f"{where}: within", length, TopologyError)
    return Distance(*pair)


def _without_limit(settings: JoinSettings, how: str, where: str) -> PartnerTimes:
    if wrong := [other for other in ("within", *_OF_EVENT_TIME) if other in settings]:
        raise TopologyError(
            f"{where}: {wrong[0]}= is for a join by event time, and keep_s= for one without a "
            "limit: give one of both"
        )
    if how not in ("inner", "semi"):
        raise TopologyError(
            f'{where}: how="{how}" emits a record without a partner when none can come any more, '
            f'and with keep_s= one always can: give within= and field=, or how="inner" or "semi"'
        )
    keep_s = settings["keep_s"]
    _KEEP.check(f"{where}: keep_s", keep_s, TopologyError)
    return Age(inf if keep_s is None else float(keep_s))


def _times_of(left: Any, right: Any, settings: JoinSettings, where: str) -> list[TimeField]:
    """The event times of both sides. Raises TopologyError, and ConfigError for a zone."""
    _TIME.check(f"{where}: late", settings.get("late", 0.0), TopologyError)
    time = declared_time(settings["field"], settings, where)
    name = settings.get("other_field")
    zone = zone_named(settings.get("other_zone"), f"{where}: other_zone") or time.zone
    times = [time, time._replace(name=time.name if name is None else name, zone=zone)]
    for stream, field in zip((left, right), times, strict=True):
        stream.schema.check_field(field.name, where)
    return times


# ---- as of a time --------------------------------------------------------------------------------


def joined_as_of(
    stream: AnyStream,
    table: Any,
    on: str | Sequence[str] | None,
    fields: Columns | None,
    settings: AsOfSettings,
    where: str,
) -> StageRows[RecordStage]:
    """Declare the join of a stream with the versions of a KeyedTable. Raises TopologyError."""
    all_settings: Any = {"parallelism": 1, **table.settings, **settings}
    return begin_join(
        declared_as_of(stream, table, on, fields, settings, where), all_settings, where
    )


def state_beside(state: Any, suffix: str = "as-of") -> Any:
    """A state in the store of another one, such as that of a join beside its table. If that has a
    name, this one has another name."""
    name = getattr(state, "name", None)
    if name is None or not is_dataclass(state):
        return state
    return replace(cast("Any", state), name=f"{name}-{suffix}")


def declared_as_of(
    stream: Any,
    table: Any,
    on: str | Sequence[str] | None,
    fields: Columns | None,
    settings: AsOfSettings,
    where: str,
) -> DeclaredJoin:
    """The join with the versions of a table, of ordinary streams or of batches. Raises
    TopologyError."""
    check_names(settings, ("fields", *AsOfSettings.__annotations__), where, TopologyError)
    if table.field is None:
        raise TopologyError(
            f"{where}: as_of= needs the time of each change of the table: give it to the table, as "
            'in table(field="changed")'
        )
    changes, how = table.changes, settings.get("how", "inner")
    late, valid_for = settings.get("late", 0.0), settings.get("valid_for")
    _TIME.check(f"{where}: late", late, TopologyError)
    if valid_for is not None:
        _TIME.check(f"{where}: valid_for", valid_for, TopologyError)
    time = declared_time(settings["as_of"], settings, where)
    zone = zone_named(settings.get("other_zone"), f"{where}: other_zone") or time.zone
    times = time, time._replace(name=table.field, zone=zone)
    stream.schema.check_field(time.name, where)
    for side in (stream, changes):
        refuse_updates(side.lineage, where, "A join as of a time", _INSTEAD_AS_OF)
    left = stream.schema, table.by if on is None else on
    both: Any = {"how": how, "kinds": ("inner", "left"), "fields": fields, "where": where}
    ours, theirs, out = joined_schema(left, (changes.schema, table.by), **both)
    name = settings.get("name") or f"{table.name}-as-of"
    state = settings.get("state", state_beside(table.settings.get("state")))
    rest = rest_of(changes.schema, theirs)
    classes = {*stream.schema.classes, *changes.schema.classes, *out.classes}
    operator = AsOfJoin(
        KeyedStore(state, name, where, classes, spread=Spread.BY_GROUP),
        ours,
        out,
        how,
        late=late,
        valid_for=valid_for,
        sides=(rest_of(stream.schema, ours), rest),
        content=[index for index, field in enumerate(rest) if field != table.field],
    )
    return DeclaredJoin(
        name,
        operator,
        join_side(stream, ours, LEFT, times[LEFT]),
        join_side(changes, theirs, RIGHT, times[RIGHT]),
    )
