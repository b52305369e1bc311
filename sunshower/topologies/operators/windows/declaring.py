"""The operators of a window over an ordinary stream, and the watermarks that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import cycle
from typing import Any, get_type_hints

from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.graph import Component, StreamSpec, Subscription
from sunshower.topologies.groupings import All
from sunshower.topologies.operators.aggregating import Combine
from sunshower.topologies.operators.aggregators import AnyAggregator
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.schemas import bound_aggregators
from sunshower.topologies.operators.stages import (
    AnyStream,
    RecordStage,
    StageRows,
    TotalsSettings,
    grouped_stage,
    location,
)
from sunshower.topologies.operators.states import Spread
from sunshower.topologies.operators.totals import check_one_task
from sunshower.topologies.operators.updates import INSTEAD_OF_WINDOW, refuse_updates
from sunshower.topologies.operators.windows.aggregated_windows import (
    CombinePanes,
    CountWindows,
    PaneValues,
    PaneWindows,
    SessionWindows,
)
from sunshower.topologies.operators.windows.event_times import NEEDS_UNIT, TimeField
from sunshower.topologies.operators.windows.watermarks import WATERMARKS, Watermark
from sunshower.topologies.operators.windows.window_kinds import (
    AnyWindow,
    Sessions,
    Window,
    type_of_end,
)
from sunshower.topologies.operators.windows.window_operator import WindowOperator
from sunshower.topologies.outputs import Columns
from sunshower.topologies.retry import DEAD_LETTERS
from sunshower.topologies.signatures import name_of


def windows_of(
    stream: AnyStream,
    by: Sequence[str],
    window: AnyWindow,
    aggregators: Sequence[AnyAggregator],
    fields: Columns | None,
    settings: TotalsSettings,
) -> StageRows[RecordStage]:
    """Declare a window over a stream, grouped by the fields `by`. Returns the rows of windows that
    have ended. Raises TopologyError."""
    name = settings.get("name")
    schema, name = stream.schema, "windows" if name is None else name
    where = location(stream, by, "window")
    if not isinstance(window, AnyWindow):
        raise TopologyError(
            f"{where}: {window!r:.200} is no window; give tumbling(…), sliding(…) or sessions(…)"
        )
    refuse_updates(stream.lineage, where, "A window", INSTEAD_OF_WINDOW)
    if window.field is not None:
        schema.check_field(window.field, where)
    if window.at_end == "keep" and settings.get("state") is None:
        raise TopologyError(
            f'{where}: at_end="keep" leaves open windows in a state, and this window is in memory; '
            'give state=SqliteState("windows.db"), or leave out at_end='
        )
    more = {"window": type_of_end(window, schema, where)}
    given, out = bound_aggregators(aggregators, schema, by, fields, where, more)
    check_one_task(by, settings.get("parallelism", 1), where)
    store = KeyedStore(
        settings.get("state"),
        name,
        where,
        {*schema.classes, *out.classes},
        spread=Spread.BY_GROUP,
        has_panes=isinstance(window, Window) and not window.by_count,
    )
    contents = PaneValues(schema, given)
    if isinstance(window, Sessions):
        operator: WindowOperator = SessionWindows(store, window, contents, by, out)
    else:
        kind = CountWindows if window.by_count else PaneWindows
        operator = kind(store, window, contents, by, out)
    combined = _combiner(window, schema, by, given) if contents.combines else None
    rows = grouped_stage(stream, by, name, settings, where, combined=combined)
    return rows.stage.end_by(window.time, operator, out)


def _combiner(
    window: AnyWindow, schema: Schema, by: Sequence[str], aggregators: Sequence[AnyAggregator]
) -> tuple[Operator, Schema] | None:
    """What combines rows before they travel to the window, and the schema of its rows; None: the
    rows travel as they are."""
    values = tuple(f"value-{index}" for index in range(len(aggregators)))
    if window.time is not None:
        panes = window.divided() if isinstance(window, Window) else None
        reader = window.time.reader(schema)
        combine = CombinePanes(schema, by, aggregators, reader, panes)
        return combine, Schema((*by, "pane-0", "records-0", *values))
    if isinstance(window, Window) and window.by_count:
        return None
    return Combine(schema, by, aggregators), Schema((*by, *values))


def with_watermarks(
    components: Mapping[str, Component], topology: str, *, tracked: bool
) -> dict[str, Component]:
    """The components, with streams of watermarks from the spouts to the windows downstream.

    Raises TopologyError if a spout does not know the event time of its records, or no tree is
    tracked.
    """
    found = dict(components)
    for id, component in components.items():
        stage = component.implementation
        if not isinstance(stage, RecordStage) or stage.window is None:
            continue
        where = f"topology {topology!r}, {stage.window.operator.word} {id!r}"
        if not tracked:
            raise TopologyError(f"{where}: it needs ackers, and ackers is 0; leave out the setting")
        spouts = _upstream(components, id, stage.window.fields, where)
        tasks = sum(components[spout].parallelism for spout in spouts)
        stage.window.operator.sources = tasks
        for spout, streams in spouts.items():
            if not streams and stage.window.fields != [None]:
                raise TopologyError(
                    f"{where}: it reads dead letters of spout {spout!r} alone, which have no event "
                    "time; give it a window without field="
                )
            found[spout] = _with_times(found[spout], streams, where)
            reads = Subscription(spout, WATERMARKS, All())
            found[id] = replace(found[id], inputs=(*found[id].inputs, reads))
    return found


def _upstream(
    components: Mapping[str, Component],
    window: str,
    fields: Sequence[TimeField | None],
    where: str,
) -> dict[str, dict[tuple[str, TimeField | None], None]]:
    """The spouts whose records reach a window; of each, its streams on the way, and the field with
    their event time. `fields`: that of each input of the window."""
    spouts: dict[str, dict[tuple[str, TimeField | None], None]] = {}
    for first, field in zip(components[window].inputs, cycle(fields), strict=False):
        seen, waiting = {window}, [first]
        while waiting:
            read = waiting.pop()
            source = components[read.source]
            if source.level.is_spout:
                streams = spouts.setdefault(source.id, {})
                if read.stream != DEAD_LETTERS:  # their times are those of their messages
                    streams[read.stream, field] = None
            stage = source.implementation
            if not source.level.is_spout and source.id not in seen:
                seen.add(source.id)
                silent = stage.silent_inputs if isinstance(stage, RecordStage) else 0
                waiting += source.inputs[silent:]
            if field is not None and isinstance(stage, RecordStage) and stage.window is not None:
                raise behind_window(where, f"{stage.window.operator.word} {source.id!r}")
    return spouts


def behind_window(where: str, window: str) -> TopologyError:
    """The error for a window of event time behind another one; `window`: the other one."""
    return TopologyError(
        f"{where}: it is downstream of {window}, whose records leave after their event time has "
        "passed; aggregate them without a window of event time"
    )


def check_time(
    field: TimeField, known: TimeField | None, rows: str, schema: Schema, spout: Any, where: str
) -> None:
    """Raise TopologyError unless records have their event time in `field`, or `spout` has a method
    for it.

    `known`: the field of another window downstream of it. `rows`: what the records are, for errors.
    """
    own = getattr(spout, "event_time", None) is not None
    if not own:
        _check_field(rows, schema, field, where)
    known = known or field
    if known.name != field.name and not own:
        raise TopologyError(
            f"{where}: its event time is {field.name!r}, that of another window downstream of "
            f"{rows} is {known.name!r}; give both the same field"
        )
    check_equal(field, known, rows, where, ("zone", "ahead", "unit"))


def check_equal(
    field: TimeField, known: TimeField, rows: str, where: str, names: Sequence[str]
) -> None:
    """Raise TopologyError if two windows declare different things of their event times."""
    for name in names:
        value, other = getattr(field, name), getattr(known, name)
        if value != other:
            raise TopologyError(
                f"{where}: its {name} is {value!r}, that of another window downstream of {rows} is "
                f"{other!r}; give both the same {name}="
            )


def _with_times(
    spout: Component, streams: Iterable[tuple[str, TimeField | None]], where: str
) -> Component:
    times = dict(spout.event_times)
    for id, field in streams:
        if field is not None:
            rows, schema = f"stream {id!r} of spout {spout.id!r}", spout.streams[id].schema
            known = times.get(id)
            check_time(field, known, rows, schema, spout.implementation, where)
            for other in times.values():  # of other streams
                check_equal(field, other, f"spout {spout.id!r}", where, ("ahead", "unit"))
            times.setdefault(id, field)
    streams_now = {**spout.streams, WATERMARKS: StreamSpec(WATERMARKS, Schema.of(Watermark))}
    return replace(spout, streams=streams_now, event_times=times, windows=spout.windows + 1)


def _check_field(rows: str, schema: Schema, field: TimeField, where: str) -> None:
    """Raise TopologyError unless records have their event time in `field`."""
    problem, hint = "", "Read records with that field (a format can do it)"
    kind = _annotation(schema, field.name)
    if field.name not in schema.fields:
        problem = f"does not have; its fields are: {', '.join(schema.fields)}"
    elif _is_no_time(kind):
        problem = f"has as {name_of(kind)}, which is no time; a number, a datetime and a date are"
    if problem:
        raise TopologyError(
            f"{where}: its event time is {field.name!r}, which {rows} {problem}. {hint}, or write "
            "`event_time` in the spout's class: def event_time(self, record) → a number, a "
            "datetime or a date"
        )
    if field.ahead not in ("auto", None) and field.unit is None and kind in (int, float, Decimal):
        raise TopologyError(f"{where}: field {field.name!r} of {rows} {NEEDS_UNIT}")


def _annotation(schema: Schema, field: str) -> Any:
    """The type of a field as annotated; Any if that is not known."""
    try:
        return get_type_hints(schema.type).get(field, Any)
    except (NameError, TypeError):
        return Any


def _is_no_time(kind: Any) -> bool:
    """Whether values of an annotation can be no event times."""
    if kind is Any:  # a class since Python 3.11
        return False
    if kind.__module__ == "numpy":
        return False
    return isinstance(kind, type) and not issubclass(kind, int | float | Decimal | date)
