"""Declares joins of ordinary streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Required

from sunshower.arguments import Values, check_names
from sunshower.config import NOTHING
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.operators.joins.stream_join import JoinInput, StreamJoin
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.schemas import joined_schema, rest_of
from sunshower.topologies.operators.stages import StageRows
from sunshower.topologies.operators.states import Spread
from sunshower.topologies.operators.totals_stage import AnyStream, TotalsSettings
from sunshower.topologies.operators.updates.update_rows import INSTEAD_OF_JOIN, refuse_updates
from sunshower.topologies.operators.windows.event_times import (
    AHEAD_RULE,
    UNIT_RULE,
    Ahead,
    TimeField,
    TimeReader,
    Unit,
    zone_named,
)
from sunshower.topologies.outputs import Columns

INPUT = ("input", "time", "values")
_TIME = Values(float, "a number", least=0)


class JoinSettings(TotalsSettings, total=False):
    """The settings of `join`.

    - `other_on`: the key of the other stream, if its fields have other names
    - `how`: "inner"; "left" emits records of this stream that had no partner, too, with None for
      the fields of the other one; "outer" those of both
    - `within`: partners are at most so far apart, in the unit of `field`; seconds of a datetime
    - `field`: of both streams: the event time
    - `other_field`: that of the other stream, if it has another name
    - `late`: how much later than a record with a higher time a record may come, 0
    - `zone`: the time zone of event times without one, such as "Europe/Berlin"
    - `other_zone`: that of the other stream, if it is another one
    - `ahead`: how far ahead of the clock an event time may be and move the watermark; "auto": an
      hour for datetimes; None: as far as it likes
    - `unit`: of event times that are numbers since 1970: "s", "ms", "us" or "ns"
    - `state`: where records wait; None: in the memory of the task, lost with its process
    - `parallelism`: the number of tasks, 1; another one takes a stored state over
    - `name`: of the bolt and of the state, by which a later run finds it; "join"
    - `resources`: what each task requests of its node
    """

    other_on: str | Sequence[str] | None
    how: Literal["inner", "left", "outer"]
    within: Required[float]
    field: Required[str]
    other_field: str | None
    late: float
    zone: str | None
    other_zone: str | None
    ahead: Ahead
    unit: Unit


def joined_streams(
    left: AnyStream,
    right: AnyStream,
    on: str | Sequence[str] | None,
    fields: Columns | None,
    settings: JoinSettings,
    where: str,
) -> StageRows:
    """Declare the join of two streams. Returns the joined rows. Raises TopologyError."""
    check_names(settings, ("fields", *JoinSettings.__annotations__), where, TopologyError)
    for name in ("within", "field"):
        if name not in settings:
            raise TopologyError(
                f'{where}: give {name}=, as in within=60, field="at": partners are at most 60 '
                "apart, in event time"
            )
    within, late, how = settings["within"], settings.get("late", 0.0), settings.get("how", "inner")
    _TIME.check(f"{where}: within", within, TopologyError)
    _TIME.check(f"{where}: late", late, TopologyError)
    field, other_field = settings["field"], settings.get("other_field")
    zone, other_zone = settings.get("zone"), settings.get("other_zone")
    ahead, unit = settings.get("ahead", "auto"), settings.get("unit")
    AHEAD_RULE.check(f"{where}: ahead", ahead, TopologyError)
    UNIT_RULE.check(f"{where}: unit", unit, TopologyError)
    times = (
        TimeField(field, zone_named(zone, where), ahead, unit),
        TimeField(
            field if other_field is None else other_field,
            zone if other_zone is None else zone_named(other_zone, f"{where}: other_zone"),
            ahead,
            unit,
        ),
    )
    for stream, time in zip((left, right), times, strict=True):
        stream.schema.check_field(time.name, where)
        refuse_updates(stream.lineage, where, "A join of two streams", INSTEAD_OF_JOIN)
    both = (left.schema, on), (right.schema, settings.get("other_on"))
    ours, theirs, out = joined_schema(
        *both, how=how, kinds=("inner", "left", "outer"), fields=fields, where=where
    )
    given, parallelism = settings.get("name"), settings.get("parallelism", 1)
    name = "join" if given is None else given
    left.topology.check_new(name, parallelism, where)
    classes = {*left.schema.classes, *right.schema.classes, *out.classes}
    widths = len(rest_of(left.schema, ours)), len(rest_of(right.schema, theirs))
    store = KeyedStore(settings.get("state"), name, where, classes, spread=Spread.BY_GROUP)
    keeps = how != "inner", how == "outer"
    operator = StreamJoin(store, ours, out, within=within, late=late, keeps=keeps, widths=widths)
    inputs = [
        join_input(left, ours, 0, times[0].reader(left.schema), f"{name}-left"),
        join_input(right, theirs, 1, times[1].reader(right.schema), f"{name}-right"),
    ]
    grouped = [rows.fields(*key) for rows, key in inputs]
    rows = left.topology.begin_stage(name, grouped, parallelism, settings.get("resources", NOTHING))
    return rows.stage.join_by(times, operator, out)


def join_input(
    stream: AnyStream, on: Sequence[str], number: int, reader: TimeReader | None, name: str
) -> tuple[Any, list[str]]:
    """The records of a stream as rows for a join, and the fields of their key."""
    operator, key = JoinInput(stream.schema, on, number, reader), key_names(on)
    return stream.then(name, operator, Schema((*key, *INPUT))), key


def key_names(on: Sequence[str]) -> list[str]:
    """The fields of the key in rows for a join, whose further fields are INPUT."""
    return [f"key-{place}" for place in range(len(on))]
