"""The operators of a window over an ordinary stream, and the watermarks that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import cycle
from types import NoneType
from typing import Annotated, Any, TypeAlias, get_args, get_origin

from sunshower.arguments import check_names
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.records import Schema
from sunshower.texts import did_you_mean
from sunshower.topologies.graph import Component, StreamSpec, Subscription, upstream
from sunshower.topologies.groupings import All
from sunshower.topologies.operators.aggregating import Combine
from sunshower.topologies.operators.aggregators import AnyAggregator
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.schemas import (
    bound_aggregators,
    check_choice,
    check_plain_reader,
)
from sunshower.topologies.operators.stages import (
    AnyStream,
    RecordStage,
    StageRows,
    TotalsSettings,
    grouped_stage,
    location,
)
from sunshower.topologies.operators.states import Spread, StateFactory
from sunshower.topologies.operators.totals import check_one_task
from sunshower.topologies.operators.updates import (
    INSTEAD_OF_WINDOW,
    WINDOW_RESULTS,
    refuse_updates,
    totals_lineage,
)
from sunshower.topologies.operators.windows.aggregated_windows import (
    RESULT_FIELDS,
    AggregatedWindows,
    CombinePanes,
    CountWindows,
    PaneWindows,
)
from sunshower.topologies.operators.windows.event_times import NEEDS_UNIT, TimeField, length_of
from sunshower.topologies.operators.windows.panes import PaneValues
from sunshower.topologies.operators.windows.session_windows import CombineSessions, SessionWindows
from sunshower.topologies.operators.windows.watermarks import WATERMARKS, Watermark
from sunshower.topologies.operators.windows.window_kinds import (
    AlignedWindow,
    AnyWindow,
    Sessions,
    Window,
    reader_of,
    type_of_end,
)
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
    where = location(stream, by, "window")
    check_names(settings, TotalsSettings.__annotations__, where, TopologyError)
    name = settings.get("name")
    name = "windows" if name is None else name
    refuse_updates(stream.lineage, where, "A window", INSTEAD_OF_WINDOW)
    if isinstance(window, AnyWindow) and window.at_end == "keep" and settings.get("state") is None:
        raise TopologyError(
            f'{where}: at_end="keep" leaves open windows in a state, and this window is in memory; '
            'give state=SqliteState("windows.db"), or leave out at_end='
        )
    given, out = window_schema(window, aggregators, stream.schema, by, fields, where)
    check_one_task(by, settings.get("parallelism", 1), where)
    are_ends = window.field is not None and end_field(origins_of(stream), window.field)
    operator = window_operator(
        window, given, stream.schema, by, out, settings.get("state"), name, where, are_ends=are_ends
    )
    combined = combiner_of(operator, given, are_ends=are_ends)
    rows = grouped_stage(stream, by, name, settings, where, combined=combined)
    return let_replace(rows.stage.end_by(window.time, operator, out), operator)


def window_schema(
    window: AnyWindow,
    aggregators: Sequence[AnyAggregator],
    schema: Schema,
    by: Sequence[str],
    fields: Columns | None,
    where: str,
) -> tuple[Sequence[AnyAggregator], Schema]:
    """The aggregators of a window, and the schema of its results. Raises TopologyError."""
    if not isinstance(window, AnyWindow):
        raise TopologyError(
            f"{where}: {window!r:.200} is no window; give tumbling(…), sliding(…) or sessions(…)"
        )
    if window.field is not None:
        schema.check_field(window.field, where)
    more = {"window": type_of_end(window, schema, where)}
    if window.repeated is not None:
        more |= RESULT_FIELDS
    given, out = bound_aggregators(aggregators, schema, by, fields, where, more)
    if window.repeated is not None and isinstance(window, Sessions):
        _check_removals(out, len(by) + len(more), where)
    if isinstance(window, Window) and window.until is not None:
        check_choice(window.until, out, f"{where}: until")
    return given, out


def window_operator(
    window: AnyWindow,
    aggregators: Sequence[AnyAggregator],
    schema: Schema,
    by: Sequence[str],
    out: Schema,
    state: StateFactory | None,
    name: str,
    where: str,
    *,
    are_ends: bool,
) -> AggregatedWindows[Any]:
    """What keeps the windows of rows of `schema`. `are_ends`: their times are ends of windows."""
    store = KeyedStore(
        state,
        name,
        where,
        {*schema.classes, *out.classes},
        spread=Spread.BY_GROUP,
        has_panes=isinstance(window, Window) and not window.by_count,
    )
    contents = PaneValues(schema, aggregators)
    if isinstance(window, Sessions):
        return SessionWindows(store, window, contents, by, out)
    kind = CountWindows if window.by_count else PaneWindows
    operator = kind(store, window, contents, by, out)
    if are_ends and isinstance(operator, PaneWindows):
        operator.reads_ends = True
    return operator


def let_replace(ended: StageRows[Any], operator: AggregatedWindows[Any]) -> StageRows[Any]:
    """The rows of windows: those with several results are as running totals, where each replaces
    the one before."""
    if operator.window.repeated is not None:
        lineage = totals_lineage(operator.out.fields[: operator.width + 1])
        ended.lineage = replace(lineage, of=WINDOW_RESULTS)
        ended.on_updates = operator.let_update
    return ended


def _check_removals(out: Schema, first: int, where: str) -> None:
    """Raise RecordMismatch if a record type has no place for the None of removals. `first`: of the
    fields with aggregated values."""
    for name in out.fields[first:]:
        kind = out.kind(name)
        if isinstance(kind, type) and kind not in (Any, object, NoneType):
            raise RecordMismatch(
                f"{where}: {out.type.__name__}.{name} is {name_of(kind)}, and it is None where a "
                "session has grown, and its earlier result is taken back; annotate "
                f"{name_of(kind)} | None"
            )


def combiner_of(
    operator: AggregatedWindows[Any], aggregators: Sequence[AnyAggregator], *, are_ends: bool
) -> tuple[Operator, Schema] | None:
    """What combines rows before they travel to their windows, and the schema of its rows; None: the
    rows travel as they are."""
    window, by, schema = operator.window, operator.by, operator.contents.schema
    values = tuple(f"value-{index}" for index in range(len(aggregators)))
    if not operator.contents.combines:
        return None
    if (reader := reader_of(window, schema)) is not None:
        if isinstance(window, Sessions):
            parts = CombineSessions(schema, by, aggregators, reader, length_of(window.gap))
            return parts, Schema((*by, "first-0", "last-0", "records-0", *values))
        panes = CombinePanes(schema, by, aggregators, reader, window.divided(), are_ends=are_ends)
        return panes, Schema((*by, "pane-0", "records-0", *values))
    if window.by_count:
        return None
    return Combine(schema, by, aggregators), Schema((*by, *values))


def with_watermarks(
    components: Mapping[str, Component], topology: str, *, tracked: bool
) -> dict[str, Component]:
    """The components, with streams of watermarks from the spouts, and from other windows, to the
    windows downstream.

    Raises TopologyError if a spout does not know the event time of its records, no tree is tracked,
    or a window of event time is downstream of itself.
    """
    by_id = dict(components)
    for id, component in components.items():
        stage = component.implementation
        if not isinstance(stage, RecordStage) or stage.window is None:
            continue
        where = f"topology {topology!r}, {stage.window.operator.word} {id!r}"
        if not tracked:
            raise TopologyError(f"{where}: it needs ackers, and ackers is 0; leave out the setting")
        senders = _Senders(components, id, stage.window.fields)
        senders.check(where)
        for spout, streams in senders.spouts.items():
            if not streams and stage.window.fields != [None]:
                raise TopologyError(
                    f"{where}: it reads dead letters of spout {spout!r} alone, which have no event "
                    "time; give it a window without field="
                )
            by_id[spout] = _with_times(by_id[spout], streams, where)
        for sender in senders.stages:
            components[sender].implementation.window.operator.sends = True
        for sender in (*senders.spouts, *senders.stages):
            sent = {**by_id[sender].streams, WATERMARKS: _MARKS}
            by_id[sender] = replace(by_id[sender], streams=sent)
            reads = Subscription(sender, WATERMARKS, All())
            by_id[id] = replace(by_id[id], inputs=(*by_id[id].inputs, reads))
        for spout in senders.all_spouts:
            by_id[spout] = replace(by_id[spout], windows=by_id[spout].windows + 1)
        tasks = {spout: components[spout].parallelism for spout in senders.all_spouts}
        operator = stage.window.operator
        operator.sources = sum(tasks.values())
        own_tasks = sum(tasks[spout] for spout in senders.spouts)
        operator.senders = own_tasks, tuple(senders.stages)
        if operator.has_tables:
            operator.tables = senders.tables()
    return by_id


_MARKS = StreamSpec(WATERMARKS, Schema.of(Watermark))


class _Senders:
    """What sends watermarks to a window: the spouts and the stages whose records reach it without
    another stage in between. `fields`: the field with the event time of each input of the window.
    """

    def __init__(
        self, components: Mapping[str, Component], window: str, fields: Sequence[TimeField | None]
    ) -> None:
        self._components, self._window, self._fields = components, window, fields
        # of each spout: its streams on the way, and the field with their event time
        self.spouts: dict[str, dict[tuple[str, TimeField | None], None]] = {}
        self.stages: dict[str, None] = {}
        self.all_spouts: dict[str, None] = {}  # also those that reach it through other stages
        self._beyond = {window}  # what is upstream of other stages
        for read, field in zip(components[window].inputs, cycle(fields), strict=False):
            self._follow([read], field, {window}, passes=False)
        behind = {stage for stage in self.stages if self._reaches(stage)}
        self._is_cycle = bool(behind)  # whether the window is downstream of itself
        self.stages = {stage: None for stage in self.stages if stage not in behind}

    def check(self, where: str) -> None:
        """Raise TopologyError for stages with which watermarks have no meaning here."""
        fields = [field for field in self._fields if field is not None]
        if self._is_cycle and fields:
            raise TopologyError(
                f"{where}: it is downstream of itself, so it would wait for its own event time; "
                "give it a window without field=, timers without event_time=, or a join with "
                "keep_s="
            )
        for stage in self.stages:
            operator = self._components[stage].implementation.window.operator
            if fields and not operator.has_times:
                raise TopologyError(
                    f"{where}: it is downstream of {operator.word} {stage!r} without a limit, "
                    "whose records may be of any event time; give that join field= and within=, or "
                    "aggregate without a window of event time"
                )
            kind = getattr(operator, "window", None)
            for known in self._components[stage].implementation.window.fields:
                for field in fields:
                    check_follows(field, known, kind, stage, where)

    def tables(self) -> tuple[str, ...]:
        """Those that only reach inputs behind the first."""
        streams = upstream(self._components, self._components[self._window].inputs[:1])
        return tuple(id for id in (*self.spouts, *self.stages) if id not in streams)

    def _follow(
        self,
        waiting: list[Subscription],
        field: TimeField | None,
        seen: set[str],
        *,
        passes: bool,
    ) -> None:
        """Note what is upstream; `passes`: it is upstream of another stage."""
        while waiting:
            read = waiting.pop()
            source = self._components[read.source]
            stage = source.implementation
            if source.level.is_spout:
                self.all_spouts[source.id] = None
                streams = {} if passes else self.spouts.setdefault(source.id, {})
                if read.stream != DEAD_LETTERS:  # their times are those of their messages
                    streams[read.stream, field] = None
                continue
            is_stage = isinstance(stage, RecordStage)
            if is_stage and stage.window is not None:
                if not passes:
                    self.stages[source.id] = None
                if source.id not in self._beyond:
                    self._beyond.add(source.id)
                    self._follow([*source.inputs], field, self._beyond, passes=True)
            elif source.id not in seen:
                seen.add(source.id)
                waiting += source.inputs[stage.silent_inputs if is_stage else 0 :]

    def _reaches(self, stage: str) -> bool:
        """Whether records of the window reach a stage."""
        reads = self._components[stage].inputs
        return stage == self._window or self._window in upstream(self._components, reads)


def check_follows(
    field: TimeField, known: TimeField | None, window: Any, stage: str, where: str
) -> None:
    """Raise TopologyError if the times of a stage upstream, whose field is `known`, have no meaning
    for those of `field`. `window`: that of the stage, if it has one."""
    if isinstance(window, AlignedWindow) and window.calendar and window.per_s != 1:
        raise TopologyError(
            f"{where}: {stage!r} upstream of it has {window.calendar} of numbers, whose ends "
            "are datetimes; make datetimes of the numbers before, with .map"
        )
    if known is not None and known.unit and field.unit and known.unit != field.unit:
        raise TopologyError(
            f"{where}: its unit is {field.unit!r}, that of {stage!r} upstream of it is "
            f"{known.unit!r}; give both the same unit="
        )


# The fields of records, and the number of the one with the end of their window, if they have one.
Origin: TypeAlias = tuple[Sequence[str], int | None]


def end_field(origins: Iterable[Origin], name: str) -> bool:
    """Whether a field has the ends of windows upstream: it has the name of their field, and no
    other record upstream has a field of that name. `origins`: the spouts and windows upstream."""
    is_end = False
    for fields, end in origins:
        if name in fields:
            if end is None or fields[end] != name:
                return False
            is_end = True
    return is_end


def origins_of(stream: AnyStream) -> Iterator[Origin]:
    """The spouts and the nearest windows of time upstream, also those of a table."""
    components, seen = stream.topology.component, set[str]()
    waiting = [(stream.component, stream.id)]
    while waiting:
        id, stream_id = waiting.pop()
        source = components(id)
        stage = source.implementation
        if source.level.is_spout:
            yield source.streams[stream_id].schema.fields, None
        elif id not in seen:
            seen.add(id)
            window = stage.window if isinstance(stage, RecordStage) else None
            operator = None if window is None else window.operator
            if isinstance(operator, PaneWindows | SessionWindows):
                yield operator.out.fields, operator.width
            else:
                reads = source.inputs[: None if operator is None else operator.passes]
                waiting += [(read.source, read.stream) for read in reads]


def check_time(
    field: TimeField,
    known: TimeField | None,
    rows: str,
    schema: Schema,
    spout: Any,
    where: str,
    remedy: str = "",
) -> None:
    """Raise TopologyError unless records have their event time in `field`, or `spout` has a method
    for it.

    `known`: the field of another window downstream of it. For errors: `rows`: what the records are;
    `remedy`: another way out than a method.
    """
    own = getattr(spout, "event_time", None) is not None
    if not own:
        _check_field(rows, schema, field, where, remedy)
    known = known or field
    if known.name != field.name and not own:
        raise TopologyError(
            f"{where}: its event time is {field.name!r}, that of another window downstream of "
            f"{rows} is {known.name!r}; give both the same field"
        )
    check_equal(field, known, rows, where, ("ahead", "unit"))


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


_REMEDY = "; or give event_time= to the declaration of the spout: a field, or such a function"


def _with_times(
    spout: Component, streams: Iterable[tuple[str, TimeField | None]], where: str
) -> Component:
    times = dict(spout.event_times)
    for id, field in streams:
        if field is not None:
            rows, schema = f"stream {id!r} of spout {spout.id!r}", spout.streams[id].schema
            known = times.get(id)
            own = spout.event_time
            if isinstance(own, str):
                _check_field(rows, schema, field._replace(name=own), where)
            elif own is not None:
                check_plain_reader(own, schema, f"{where}: event_time of spout {spout.id!r}")
            code = spout.implementation if own is None else spout
            check_time(field, known, rows, schema, code, where, _REMEDY)
            for other in times.values():  # of other streams
                check_equal(field, other, f"spout {spout.id!r}", where, ("ahead", "unit"))
            times[id] = field if known is None else known.read_as(field)
    return replace(spout, event_times=times)


def _check_field(rows: str, schema: Schema, field: TimeField, where: str, remedy: str = "") -> None:
    """Raise TopologyError unless records have their event time in `field`."""
    problem, hint = "", "Read records with that field (a format can do it)"
    kind = _annotation(schema, field.name)
    if field.name not in schema.fields:
        meant = did_you_mean(field.name, schema.fields)
        problem = f"does not have; its fields are: {', '.join(schema.fields)}{meant}"
    elif _is_no_time(kind):
        problem = f"has as {name_of(kind)}, which is no time; a number, a datetime and a date are"
    if problem:
        raise TopologyError(
            f"{where}: its event time is {field.name!r}, which {rows} {problem}. {hint}, or write "
            "`event_time` in the spout's class: def event_time(self, record) → a number, a "
            f"datetime or a date{remedy}"
        )
    if field.ahead not in ("auto", None) and field.unit is None and kind in (int, float, Decimal):
        raise TopologyError(f"{where}: field {field.name!r} of {rows} {NEEDS_UNIT}")


def _annotation(schema: Schema, field: str) -> Any:
    """The type of a field as annotated; Any if that is not known."""
    kind = schema.kind(field)
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _is_no_time(kind: Any) -> bool:
    """Whether values of an annotation can be no event times."""
    if kind in (Any, object):  # Any is a class since Python 3.11
        return False
    if kind.__module__ == "numpy":
        return False
    return isinstance(kind, type) and not issubclass(kind, int | float | Decimal | date)
