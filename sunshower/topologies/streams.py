"""Streams and their groupings: the handles that declarations return and accept as inputs.

    words = lines.flat_map(split)
    totals = words.group_by("word").aggregate(count(), state=SqliteState("counts.db"))
    totals.shuffle().bolt("store", JsonLines("counts.jsonl"))

Operators that follow one another are a stage, which is one bolt; a grouping or an aggregation
begins the next one. Storm: org.apache.storm.streams.Stream, PairStream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Never,
    Self,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from sunshower.arguments import check_names
from sunshower.config import NOTHING, Resources
from sunshower.errors import RecordMismatch, TopologyError, UnknownStream
from sunshower.records import Schema
from sunshower.topologies import groupings
from sunshower.topologies.components import DEFAULT, BatchFunction, In, Out, R
from sunshower.topologies.graph import Level, StreamSpec
from sunshower.topologies.operators import columns, schemas
from sunshower.topologies.operators.aggregators import AnyAggregator
from sunshower.topologies.operators.joins.joined_streams import (
    AsOfSettings,
    BoundedSettings,
    JoinSettings,
    joined_as_of,
    joined_streams,
)
from sunshower.topologies.operators.joins.keyed_tables import KeyedTable, TableSettings, keyed_table
from sunshower.topologies.operators.keyed.key_states import StateOfKey
from sunshower.topologies.operators.keyed.keyed_process import DistinctSettings, first_and_later
from sunshower.topologies.operators.keyed.patterns import Match, PatternStep, Skip
from sunshower.topologies.operators.keyed.process_settings import (
    BoltOptions,
    ConnectedSettings,
    EventOrder,
    Input,
    OrderedSettings,
    OrderSettings,
    ProcessSettings,
    connected_process,
    event_order,
    matches_of,
    process_of,
)
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.record_operators import (
    CONNECTED,
    IN_ORDER,
    GroupedStream,
    RecordOperators,
)
from sunshower.topologies.operators.schemas import code_name
from sunshower.topologies.operators.stages import (
    Declarations,
    RecordStage,
    StageRows,
    TotalsSettings,
    totals_of,
)
from sunshower.topologies.operators.updates import Lineage, update_schema
from sunshower.topologies.operators.windows.declaring import windows_of
from sunshower.topologies.operators.windows.window_kinds import AnyWindow
from sunshower.topologies.outputs import Columns, Declared, Row
from sunshower.topologies.signatures import BoltCode, Many, name_of

R_co = TypeVar("R_co", covariant=True)
Other = TypeVar("Other")
S = TypeVar("S", bound=StateOfKey)


# ---- streams -------------------------------------------------------------------------------------


class RecordAggregations(Generic[R_co]):
    """What a stream and a grouped stream have in common."""

    def _grouped(self) -> tuple[Stream[R_co], tuple[str, ...]]:
        raise NotImplementedError

    def aggregate(
        self,
        *aggregators: AnyAggregator,
        fields: type[Row] | Sequence[str] | None = None,
        **settings: Unpack[TotalsSettings],
    ) -> Stream[Row]:
        """The totals of each group, or of all records together: for each batch that a task
        processes, one record (fields of the group, aggregated values) of each group that changed.

        Combiners first combine the records within their task, so one row is sent for each group and
        batch. Without a `state=` the totals are in the memory of their task and are lost with it;
        with one they are written before the records are acked. A replayed record counts again.
        `name` (default: the aggregators' fields) is the id of the bolt and of the state. Raises
        TopologyError unless given one ReducerAggregator, or CombinerAggregators.
        """
        stream, by = self._grouped()
        rows = totals_of(stream, by, aggregators, fields, settings)
        return Stream.of_rows(stream.topology, rows, "totals")

    def window(
        self,
        window: AnyWindow,
        *aggregators: AnyAggregator,
        fields: type[Row] | Sequence[str] | None = None,
        **settings: Unpack[TotalsSettings],
    ) -> WindowRows[Row]:
        """A record of each group and each window that has ended: (fields of the group, window,
        aggregated values). `window` is the end of a time window or session, or the number of a
        count window, from 0.

        Without a `state=` open windows are in the memory of their task and are lost with it; with
        one they are written before their records are acked. A replayed record counts again. The
        records of an ended window are emitted until they are processed. `name` (default: windows)
        is the id of the bolt and of the state.
        """
        stream, by = self._grouped()
        rows = windows_of(stream, by, window, aggregators, fields, settings)
        return WindowRows.of_rows(stream.topology, rows, "windows")


class Stream(RecordOperators[R_co], RecordAggregations[R_co]):
    """One output stream of a component, and the handle of that component.

    Operators such as `map` return another stream. Groupings such as `shuffle` choose the tasks of a
    bolt that get each record. Both raise UnknownStream for a component without such a stream, and
    UnknownField for a field that its records do not have. A direct stream without `direct`, or the
    reverse, raises TopologyError.
    """

    _each_table = columns.EachColumns

    def __init__(self, topology: Declarations, component: str, id: str = DEFAULT) -> None:
        self.topology, self.component, self.id = topology, component, id
        self._rows: StageRows[RecordStage] | None = None  # of an operator
        self._lineage: Lineage | None = None  # of the records of a component

    @classmethod
    def of_rows(
        cls, topology: Declarations, rows: StageRows[RecordStage], word: str = "records"
    ) -> Self:
        """The rows of an operator. Their stream is declared when something outside reads it."""
        stream = cls(topology, rows.stage.id, word)
        stream._rows = rows
        return stream

    if not TYPE_CHECKING:  # hidden from mypy

        def bolt(self, *_: object, **__: object) -> Never:
            """Raise TopologyError, which asks for a grouping first."""
            raise TopologyError(
                f"{self}: declare a grouping, as in .shuffle().bolt(…) or .fields(…).bolt(…)"
            )

    @property
    def program(self) -> Declarations:
        return self.topology

    def leave(self, id: str) -> Self:
        return self

    def _check_streams(self, streams: Sequence[Any], where: str) -> None:
        for stream in streams:
            if not isinstance(stream, Stream):
                raise TopologyError(f"{where}: {stream!r:.200} is no stream")

    def _merged(self, streams: Sequence[Self]) -> Self:
        inputs = [stream.local_or_shuffle() for stream in streams]
        parallelism = max(
            self.topology.component(stream.component).parallelism for stream in streams
        )
        id = self.topology.unused_id("merge")
        return self.of_rows(self.topology, self.topology.begin_stage(id, inputs, parallelism))

    def _with(
        self, word: str, operator: Callable[[], Operator], schema: Schema, code: Any = None
    ) -> Self:
        return self.of_rows(self.topology, self._then(word, operator(), schema, code), word)

    def _made(
        self, word: str, operator: Callable[[], Operator], schema: Schema, code: Any = None
    ) -> Stream[Any]:
        return self.then(word, operator(), schema, code)

    def _then(
        self, word: str, operator: Operator, schema: Schema, code: Any
    ) -> StageRows[RecordStage]:
        rows = self._rows
        if rows is None:
            name = word if code is None else code_name(code)
            id = self.topology.unused_id(word if name == "lambda" else name)
            parallelism = self.topology.component(self.component).parallelism
            rows = self.topology.begin_stage(id, [self.local_or_shuffle()], parallelism)
        return rows.then(operator, schema)

    @property
    def lineage(self) -> Lineage | None:
        return self._lineage if self._rows is None else self._rows.lineage

    def need_updates(self) -> None:
        """Let its records arrive at its readers as updates; only if they follow from totals."""
        assert self._rows is not None
        self._rows.need_updates()

    def updates(self, reader: RecordStage) -> StreamSpec:
        """The stream of the updates of its records for `reader`; see `need_updates`."""
        self.need_updates()
        rows = self._rows
        assert rows is not None
        rows.arrivals.append(reader.input)
        if rows.updates_stream is None:
            rows.updates_stream = rows.stage.new_stream("updates")
            spec = StreamSpec(rows.updates_stream, update_schema(rows.schema))
            self.topology.declare_stream(self.component, spec)
        return self.topology.component(self.component).streams[rows.updates_stream]

    def answer(self) -> None:
        """These records are the answer of the request that they follow from: see
        Topology.requests. Records that no request has caused are dropped."""
        self.topology.answer(self)

    @property
    def schema(self) -> Schema:
        return self.spec.schema if self._rows is None else self._rows.schema

    @property
    def has_columns(self) -> bool:
        if self._rows is not None:
            return self._rows.has_columns
        level = self.topology.component(self.component).level
        return level in (Level.TABLES, Level.BATCH) and self.id == DEFAULT

    def _where(self, word: str, code: Any = None) -> str:
        where = f"{self}, {word}" if word else str(self)
        return where + ("" if code is None else f"({code_name(code)})")

    @property
    def spec(self) -> StreamSpec:
        """The declaration of this stream. Raises UnknownStream, which lists the streams."""
        if (rows := self._rows) is not None and rows.stream is None and rows.schema.fields:
            self.id = rows.stream = rows.stage.new_stream(self.id)
            self.topology.declare_stream(self.component, StreamSpec(self.id, rows.schema))
        streams = self.topology.component(self.component).streams
        if not isinstance(self.id, str) or self.id not in streams:
            raise UnknownStream(
                f"{self}: there is no such stream; the streams of "
                f"{self.component!r} are: {', '.join(streams) or 'none'}"
            )
        return streams[self.id]

    def __str__(self) -> str:
        return f"topology {self.topology.id!r}, stream {self.id!r} of {self.component!r}"

    @overload
    def stream(self, id: str) -> Stream[Any]: ...
    @overload
    def stream(self, id: str, type: type[R]) -> Stream[R]: ...
    def stream(self, id: str, type: type[Any] | None = None) -> Stream[Any]:
        """Return another output stream of this component, whose records are of `type`.

        Raises UnknownStream, or RecordMismatch if they are not.
        """
        other = Stream[Any](self.topology, self.component, id)
        schema = other.spec.schema
        if type is not None and schema.type is not type:
            raise RecordMismatch(f"{other}: its records are {schema.name}, not {name_of(type)}")
        return other

    def shuffle(self) -> Grouped[R_co]:
        """For bolts without a state: each task sees a part of every key. For one that keeps a state
        group by the key, with `fields`. The records go evenly to all tasks."""
        return Grouped(self, groupings.Shuffle())

    def fields(self, *fields: str) -> Grouped[R_co]:
        return Grouped(self, groupings.Fields(fields))

    def partial_key(self, *fields: str) -> Grouped[R_co]:
        return Grouped(self, groupings.PartialKey(fields))

    def all(self) -> Grouped[R_co]:
        return Grouped(self, groupings.All())

    def global_(self) -> Grouped[R_co]:
        return Grouped(self, groupings.Global())

    def none(self) -> Grouped[R_co]:
        return Grouped(self, groupings.NoneGrouping())

    def direct(self) -> Grouped[R_co]:
        return Grouped(self, groupings.Direct())

    def local_or_shuffle(self) -> Grouped[R_co]:
        """For bolts without a state, as `shuffle`. The records go to the tasks in the sender's own
        process, if there are any, else to all."""
        return Grouped(self, groupings.LocalOrShuffle())

    def custom(self, grouping: groupings.CustomGrouping) -> Grouped[R_co]:
        return Grouped(self, groupings.Custom(grouping))

    # ---- operators -------------------------------------------------------------------------------

    if TYPE_CHECKING:  # the types of what the methods of RecordOperators return

        @overload
        def flat_map(self, function: BatchFunction, *, fields: type[Out]) -> Stream[Out]: ...
        @overload
        def flat_map(
            self, function: Callable[[R_co], Many[Out]], *, fields: Columns | None = None
        ) -> Stream[Out]: ...
        def flat_map(self, function: Any, *, fields: Any = None) -> Stream[Any]: ...

        @overload
        def map(
            self, function: Callable[[R_co], Awaitable[Out]], *, fields: Columns | None = None
        ) -> Stream[Out]: ...
        @overload
        def map(
            self, function: Callable[[R_co], Out], *, fields: Columns | None = None
        ) -> Stream[Out]: ...
        def map(self, function: Any, *, fields: Any = None) -> Stream[Any]: ...

        def project(self, *fields: str) -> Stream[tuple[Any, ...]]: ...
        def merge(self, *others: Stream[R_co]) -> Self: ...

    @overload
    def join(
        self,
        other: Stream[Any],
        on: str | Sequence[str],
        *,
        fields: type[Row] | Sequence[str] | None = None,
        **settings: Unpack[JoinSettings],
    ) -> WindowRows[Row]: ...
    @overload
    def join(
        self,
        other: Stream[Any],
        on: str | Sequence[str],
        *,
        how: Literal["semi", "anti"],
        **settings: Unpack[BoundedSettings],
    ) -> WindowRows[R_co]: ...
    @overload
    def join(
        self,
        other: KeyedTable,
        on: str | Sequence[str] | None = None,
        *,
        how: Literal["inner", "left"] = "inner",
        fields: type[Row] | Sequence[str] | None = None,
    ) -> Stream[Row]: ...
    @overload
    def join(
        self,
        other: KeyedTable,
        on: str | Sequence[str] | None = None,
        *,
        fields: type[Row] | Sequence[str] | None = None,
        **settings: Unpack[AsOfSettings],
    ) -> WindowRows[Row]: ...
    def join(
        self,
        other: Stream[Any] | KeyedTable,
        on: str | Sequence[str] | None = None,
        *,
        fields: Columns | None = None,
        **settings: Any,
    ) -> Stream[Any]:
        """Join records with equal values of `on`: (key, other fields of self, of `other`).

        With a stream: those whose event times are close, when the second of them is processed.
        Records wait for partners in a keyed state. Those of a left or an outer join that had none
        are emitted when the watermark has passed all partners. A replayed record is joined again.
        `how="semi"`: the records of self that have a partner, once; "anti": those that have none.
        Settings: JoinSettings. With a table: the record that is there when this one is processed;
        with `as_of="at"` the one that was valid at that time, once the watermarks have passed it.
        Settings: AsOfSettings.
        """
        where, given = self._where("join"), cast("Any", settings)
        if isinstance(other, KeyedTable):
            other.check_stream(self, where)
            if "as_of" not in settings:
                rows = other.join(self, on, fields, settings, where)
                return Stream.of_rows(self.topology, rows, "joined")
            rows = joined_as_of(self, other, on, fields, given, where)
        elif isinstance(other, Stream):
            rows = joined_streams(self, other, on, fields, given, where)
        else:
            raise TopologyError(f"{where}: {other!r:.200} is no stream")
        return WindowRows.of_rows(self.topology, rows, "joined")

    def group_by(self, *fields: str) -> GroupedRecords[R_co]:
        """Group records with equal values of `fields`."""
        schemas.check_fields(self.schema, fields, self._where("group_by"))
        return GroupedRecords(self, fields)

    def distinct(
        self, on: str | Sequence[str], **settings: Unpack[DistinctSettings]
    ) -> Stream[R_co]:
        """The first record of each value of the fields `on`; `ttl_s` after it, the next one is new
        again. A record leaves with the next watermark, and is stored until then, so a failure
        behind this operator loses none. Settings: DistinctSettings."""
        fields = (on,) if isinstance(on, str) else tuple(on)
        where = self._where(f"distinct({', '.join(map(str, fields))})")
        check_names(settings, DistinctSettings.__annotations__, where, TopologyError)
        function, on_timer = first_and_later(self.schema, settings.get("ttl_s"), where)
        others: Any = {name: value for name, value in settings.items() if name != "ttl_s"}
        columns = self.schema.fields if self.schema.type is tuple else self.schema.type
        return self.group_by(*fields).process(function, on_timer=on_timer, fields=columns, **others)

    def _grouped(self) -> tuple[Stream[R_co], tuple[str, ...]]:
        return self, ()

    def then(self, word: str, operator: Operator, schema: Schema, code: Any = None) -> Stream[Any]:
        """What an operator makes of these records. A new stage is named after its function."""
        return Stream.of_rows(self.topology, self._then(word, operator, schema, code), word)


class WindowRows(Stream[R_co]):
    """The records of windows that have ended, or of a join."""

    @property
    def late(self) -> Stream[R_co]:
        """Records that came too late for their window, aggregated in the same way. One that is late
        for several windows counts in the last of them. Of a join: with None for the other side."""
        assert self._rows is not None
        return Stream.of_rows(self.topology, self._rows.stage.late, "late")


class GroupedRecords(GroupedStream, RecordAggregations[R_co]):
    """The records of a stream, grouped by the values of the fields `by`."""

    def __init__(self, stream: Stream[R_co], by: Sequence[str]) -> None:
        self.stream, self.by = stream, tuple(by)

    def _grouped(self) -> tuple[Stream[R_co], tuple[str, ...]]:
        return self.stream, self.by

    @overload
    def process(
        self, function: Callable[[R_co, S], None], **settings: Unpack[ProcessSettings]
    ) -> Stream[Never]: ...
    @overload
    def process(
        self,
        function: Callable[[R_co, S], Iterable[Out] | None],
        *,
        on_timer: Callable[[Any, S], Iterable[Out] | None] | None = None,
        fields: Columns | None = None,
        **settings: Unpack[ProcessSettings],
    ) -> Stream[Out]: ...
    def process(
        self,
        function: Any,
        *,
        on_timer: Any = None,
        fields: Columns | None = None,
        **settings: Unpack[ProcessSettings],
    ) -> Stream[Any]:
        """What `function(record, state)` yields, or returns in a list, for each record and the
        state of its key, which the function reads and changes: `state.value`.

        States are written once for each batch of a task, before its records are acked. If the
        function raises, its record fails alone, and its state is as before. A replayed record is
        processed again. A callable may have `prepare` and `cleanup`. Settings: ProcessSettings.

        `on_timer(key, state)` is called when the time has come to which `state.timer` was set, and
        at the end of all sources until no timer is set: `state.ended` is True there.
        """
        stream, by = self._grouped()
        rows = process_of(stream, by, function, on_timer, fields, settings)
        return Stream.of_rows(stream.topology, rows, "process")

    def in_order(
        self, field: str, late: float = 0.0, **settings: Unpack[OrderSettings]
    ) -> OrderedRecords[R_co]:
        """The records of each key in the order of their event time, which is in `field`: each is
        handed on when the watermark has passed it. Records of equal time keep the order in which
        they arrived. One may come `late` after a record with a higher time; what comes later is in
        the result's stream `late`. Settings: OrderSettings."""
        stream, by = self._grouped()
        where = f"{stream}, group_by({', '.join(by)}), in_order"
        return OrderedRecords(self, event_order(stream, field, late, settings, where))

    def connect(self, other: GroupedRecords[Other]) -> ConnectedRecords[R_co | Other]:
        """The records of both streams, for one function and one state of each key; the two keys
        have as many fields, in the same order."""
        return ConnectedRecords[R_co]([self]).connect(other)

    def table(self, **settings: Unpack[TableSettings]) -> KeyedTable:
        """The latest record of each key, with which streams are joined: `stream.join(table)`. One
        whose other fields are all None removes its key. Settings: TableSettings."""
        stream, by = self._grouped()
        where = f"{stream}, group_by({', '.join(by)}), table"
        return keyed_table(stream, by, settings, where)


L_co = TypeVar("L_co", covariant=True)


class OrderedRows(Stream[R_co], Generic[R_co, L_co]):
    """What was made of records in the order of event time."""

    @property
    def late(self) -> Stream[L_co]:
        """The records that came too late for the order, as they are."""
        assert self._rows is not None
        return Stream.of_rows(self.topology, self._rows.stage.late, "late")


class OrderedRecords(GroupedStream, Generic[R_co]):
    """The records of each key of a stream in the order of their event time, for one operator. They
    wait in its state, from which they are removed together with the changes that they cause."""

    call_it = IN_ORDER

    def __init__(self, grouped: GroupedRecords[R_co], order: EventOrder) -> None:
        self.stream, self._by = grouped._grouped()
        self._order = order

    @overload
    def process(
        self, function: Callable[[R_co, S], None], **settings: Unpack[OrderedSettings]
    ) -> OrderedRows[Never, R_co]: ...
    @overload
    def process(
        self,
        function: Callable[[R_co, S], Iterable[Out] | None],
        *,
        on_timer: Callable[[Any, S], Iterable[Out] | None] | None = None,
        fields: Columns | None = None,
        **settings: Unpack[OrderedSettings],
    ) -> OrderedRows[Out, R_co]: ...
    def process(
        self, function: Any, *, on_timer: Any = None, fields: Columns | None = None, **settings: Any
    ) -> OrderedRows[Any, Any]:
        """What `function(record, state)` yields, as of `group_by(…).process`, but called with
        records in their order, and between them with timers: one that is due at the time of a
        record is first. `state.time` is the time of the record.

        The changes of a record, what is made of it, and its removal from the state are stored
        together when the watermark has passed it, so they are repeated by no failure; what was
        made is emitted until it is processed. If `function` raises, the watermark is repeated, and
        after `attempts_max` times the topology ends. Settings: OrderedSettings.
        """
        stream, by = self.stream, self._by
        given: ProcessSettings = settings  # type: ignore[assignment]
        rows = process_of(stream, by, function, on_timer, fields, given, self._order)
        return OrderedRows.of_rows(stream.topology, rows, "process")

    def match(
        self,
        *steps: PatternStep[R_co],
        within: float,
        select: Callable[[Match[R_co]], Out],
        skip: Skip = "past_last",
        fields: Columns | None = None,
        **settings: Unpack[TotalsSettings],
    ) -> OrderedRows[Out, R_co]:
        """What `select` makes of each match of a pattern in the records of a key: of the records of
        each step, by its name. The last record of a match is less than `within` after its first, in
        the unit of the event time; seconds of a datetime.

        Each record begins at most one match, and a record goes to the first step that it fits. The
        next match begins behind the last record of this one, so no two have a record in common; or
        `skip="to_last"`: at its last record; "to_next": behind its first record. Settings:
        TotalsSettings.
        """
        stream, by = self.stream, self._by
        pattern = steps, within, skip
        rows = matches_of(stream, by, self._order, pattern, select, fields, settings)
        return OrderedRows.of_rows(stream.topology, rows, "match")


class ConnectedRecords(GroupedStream, Generic[R_co]):
    """The records of several streams, each grouped by its key, whose states they share."""

    call_it = CONNECTED

    def __init__(self, grouped: Sequence[GroupedRecords[Any]]) -> None:
        self._grouped, self.stream = tuple(grouped), grouped[0].stream

    def connect(self, other: GroupedRecords[Other]) -> ConnectedRecords[R_co | Other]:
        """The records of a further stream, too."""
        if not isinstance(other, GroupedRecords):
            raise TopologyError(
                f"{self._grouped[0].stream}, connect: {other!r:.200} is no stream grouped by its "
                'key, as in .connect(payments.group_by("order"))'
            )
        return ConnectedRecords([*self._grouped, other])

    @overload
    def process(
        self, function: Callable[[R_co, S], None], **settings: Unpack[ConnectedSettings]
    ) -> Stream[Never]: ...
    @overload
    def process(
        self,
        function: Callable[[R_co, S], Iterable[Out] | None],
        *,
        on_timer: Callable[[Any, S], Iterable[Out] | None] | None = None,
        fields: Columns | None = None,
        **settings: Unpack[ConnectedSettings],
    ) -> Stream[Out]: ...
    def process(
        self,
        function: Any,
        *,
        on_timer: Any = None,
        fields: Columns | None = None,
        **settings: Unpack[ConnectedSettings],
    ) -> Stream[Any]:
        """What `function(record, state)` makes of each record of all streams, as `process` of one
        stream: the annotation of its first parameter is `Order | Payment`. A timer is due when all
        streams have passed its time. Settings: ConnectedSettings."""
        inputs = [Input(grouped.stream, grouped.by) for grouped in self._grouped]
        rows = connected_process(inputs, function, on_timer, fields, settings)
        return Stream.of_rows(inputs[0].stream.topology, rows, "process")


class Grouped(GroupedStream, Generic[R_co]):
    """A stream and its grouping: the input of a bolt."""

    def __init__(self, stream: Stream[R_co], grouping: groupings.Grouping) -> None:
        self.stream, self.grouping = stream, grouping
        spec = stream.spec
        groupings.check(grouping, spec.schema, str(stream), direct=spec.direct)

    @overload
    def bolt(
        self,
        id: str,
        impl: BoltCode[R_co, Never],
        parallelism: int = 1,
        **out: Unpack[BoltOptions],
    ) -> Stream[Never]: ...
    @overload
    def bolt(
        self, id: str, impl: BoltCode[R_co, Out], parallelism: int = 1, **out: Unpack[BoltOptions]
    ) -> Stream[Out]: ...
    @overload
    def bolt(
        self, id: str, impl: BatchFunction, parallelism: int = 1, *, fields: type[Out]
    ) -> Stream[Out]: ...
    @overload
    def bolt(
        self, id: str, impl: BatchFunction, parallelism: int = 1, fields: Declared | None = None
    ) -> Stream[Any]: ...
    def bolt(
        self,
        id: str,
        impl: Any,
        parallelism: int = 1,
        fields: Declared | None = None,
        **out: Any,
    ) -> Stream[Any]:
        """Declare a bolt of `parallelism` tasks that reads this stream; see Topology.bolt. With
        several tasks, one that keeps a state needs an input grouped by its key."""
        declare: Callable[..., Stream[Any]] = self.stream.topology.bolt
        return declare(id, impl, [self], parallelism, fields, **out)

    def stage(self, id: str, parallelism: int = 1, resources: Resources = NOTHING) -> Stream[R_co]:
        """The records of this stream in a new stage of `parallelism` tasks: the operators that
        follow run in the bolt `id`. Raises as Topology.bolt does."""
        topology = self.stream.topology
        return Stream.of_rows(topology, topology.begin_stage(id, [self], parallelism, resources))

    def into(self, bolt: str) -> None:
        """Add an input to a bolt that is declared already: graphs may have cycles. Raises
        UnknownComponent, and otherwise as Topology.bolt."""
        self.stream.topology.add_input(bolt, self)


# The Callable is never used: its type variable in a return makes mypy infer `impl` first and check
# every input against it. Otherwise it joins the inputs' types: two record types join to tuple.
Inputs: TypeAlias = Sequence[Grouped[In]] | Callable[[], In]
