"""Streams of batches, and the words to declare what is done with their rows.

    words = batches(topology, "lines", spout).each(split)
    counts = words.group_by("word").persistent_aggregate(SqliteState("counts.db"), count())

Each declaration is checked when it is made. Storm: org.apache.storm.trident.Stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Literal, TypeVar, overload

from sunshower.arguments import FUNCTION
from sunshower.errors import RecordMismatch, TopologyError
from sunshower.records import Schema
from sunshower.topologies.components import BatchFunction, Out
from sunshower.topologies.groupings import CustomGrouping
from sunshower.topologies.outputs import Columns
from sunshower.topologies.streams import Stream
from sunshower.trident.aggregators import Aggregating
from sunshower.trident.declaring import (
    check_predicate,
    check_reader,
    code_name,
    columns_schema,
    declared_schema,
    each_schema,
    join_keys,
    map_schema,
)
from sunshower.trident.drafts import (
    Made,
    Mixed,
    StageDraft,
    Tip,
    gather,
    name_stage,
    send,
    tips_of,
)
from sunshower.trident.grouped import GroupedBatches
from sunshower.trident.leaving import leave
from sunshower.trident.persisted import BatchState, check_pairs, persist_partition, query
from sunshower.trident.stages import steps
from sunshower.trident.stages.joining import Join, rest_of
from sunshower.trident.stages.plan import Sharing
from sunshower.trident.stages.port import Operator, publishing
from sunshower.trident.stages.ranking import Ranking
from sunshower.trident.stages.sharing import ByBatch, ByFields, Chosen, Even, ToAll, ToFirst
from sunshower.trident.states.port import StateFactory, StateKind
from sunshower.trident.windows import Window

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class BatchStream(Generic[R_co]):
    """Rows of batches, and how they go on.

    The methods raise TopologyError or one of its kinds for a declaration that cannot work:
    UnknownField, RecordMismatch for annotations that do not fit, DuplicateComponent.
    """

    input_hint = 'let its rows leave their batches first: .records("rows").shuffle()'

    def __init__(self, tip: Tip) -> None:
        self.tip = tip

    @property
    def schema(self) -> Schema:
        """The fields of its rows, and their record type."""
        return self.tip.schema

    # ---- row by row ----------------------------------------------------------------------------

    @overload
    def each(self, function: BatchFunction, *, fields: type[Out]) -> BatchStream[Out]: ...
    @overload
    def each(
        self, function: BatchFunction, *, fields: Sequence[str]
    ) -> BatchStream[tuple[Any, ...]]: ...
    @overload
    def each(
        self, function: Callable[[R_co], Iterable[Out] | None], *, fields: Columns | None = None
    ) -> BatchStream[Out]: ...
    def each(self, function: Any, *, fields: Columns | None = None) -> BatchStream[Any]:
        """What `function` yields, or returns in a list, for each row; it is like a bolt's.

        Of a function marked with `@batch`, what it makes of many rows as an Arrow table: Derived, a
        table, or None; `fields` says its record type or its columns. A callable object may have
        `prepare(context)` and `cleanup()`. Storm: each with a Function, flatMap.
        """
        where = self._where("each", function)
        schema = each_schema(function, self.schema, fields, where)
        if getattr(function, "__sunshower_batch__", False):
            return self._spread(lambda: steps.Columns(function, self.schema, schema), schema)
        return self._spread(lambda: steps.Each(function, schema), schema)

    flat_map = each

    def map(
        self, function: Callable[[R_co], Out], *, fields: Columns | None = None
    ) -> BatchStream[Out]:
        """What `function` returns for each row."""
        schema = map_schema(function, self.schema, fields, self._where("map", function))
        return self._spread(lambda: steps.Map(function, schema), schema)

    def filter(self, predicate: Callable[[R_co], bool]) -> BatchStream[R_co]:
        """The rows for which `predicate` is true."""
        check_predicate(predicate, self.schema, self._where("filter", predicate))
        return self._spread(lambda: steps.Filter(predicate), self.schema)

    def peek(self, function: Callable[[R_co], object]) -> BatchStream[R_co]:
        """All rows, after `function` has seen each: to log, or to count. Repeats are seen again."""
        check_reader(function, self.schema, self._where("peek", function))
        return self._spread(lambda: steps.Peek(function), self.schema)

    def project(self, *fields: str) -> BatchStream[tuple[Any, ...]]:
        """Some fields of each row, as plain tuples."""
        where = self._where("project")
        for name in fields:
            self.schema.check_field(name, where)
        schema = columns_schema(fields, where)
        return self._spread(lambda: steps.Project(self.schema, fields), schema)

    def operate(
        self,
        operator: Operator,
        *others: BatchStream[Any],
        fields: Columns,
        not_exactly_once: bool = False,
    ) -> BatchStream[Any]:
        """An operator of your own, in the stage where the rows are; see `stages/port.py`.

        With `others`, all rows of a batch meet in one task: ours are its input 0, theirs 1, 2 ….
        `fields` is () if it emits nothing. One that `commits` or `publishes` undoes itself what an
        earlier attempt has written, as an opaque state does.
        """
        where = self._where("operate", operator)
        if not callable(getattr(operator, "process", None)) or not hasattr(operator, "commits"):
            raise TopologyError(f"{where}: {operator!r} is no operator; see stages/port.py")
        tips = tips_of([self, *others], where)
        if operator.commits or publishing(operator):
            for tip in tips:
                check_pairs(StateKind.OPAQUE, tip, where, not_exactly_once)
        schema = Schema(("nothing",)) if fields == () else columns_schema(fields, where)
        if not others:
            return self.then(operator, schema)
        stage = self.stage(1)
        inputs = tuple((send(tip, ToFirst(), stage),) for tip in tips)
        return BatchStream(Made(schema, stage, operator, inputs))

    def apply(self, assembly: Callable[[BatchStream[R_co]], T]) -> T:
        """What `assembly` makes of this stream: a piece of a program with a name of its own."""
        FUNCTION.check(self._where("apply"), assembly, TopologyError)
        return assembly(self)

    # ---- all rows of a batch -------------------------------------------------------------------

    def partition_aggregate(
        self, *aggregators: Aggregating, fields: Columns | None = None
    ) -> BatchStream[Any]:
        """What the rows of each task come to, whatever task they are in: a row for each task."""
        return self._all().partition_aggregate(*aggregators, fields=fields)

    def aggregate(
        self, *aggregators: Aggregating, fields: Columns | None = None, parallelism: int = 1
    ) -> BatchStream[Any]:
        """What all rows of a batch come to: one row, also of an empty batch.

        Several aggregators make one row together. Combiners begin where the rows are.
        """
        whole: Any = self._all()
        made: BatchStream[Any] = whole.aggregate(
            *aggregators, fields=fields, parallelism=parallelism
        )
        return made

    def persistent_aggregate(
        self,
        state: StateFactory,
        aggregator: Aggregating,
        *,
        fields: Columns | None = None,
        name: str | None = None,
        not_exactly_once: bool = False,
    ) -> BatchState[Any]:
        """What all rows of all batches come to, in a state; see GroupedBatches."""
        whole: Any = self._all()
        made: BatchState[Any] = whole.persistent_aggregate(
            state, aggregator, fields=fields, name=name, not_exactly_once=not_exactly_once
        )
        return made

    def window(
        self,
        window: Window,
        *aggregators: Aggregating,
        state: StateFactory,
        fields: Columns | None = None,
        name: str = "windows",
        not_exactly_once: bool = False,
    ) -> BatchState[Any]:
        """What the rows of each window come to; see GroupedBatches."""
        given: dict[str, Any] = {"name": name, "not_exactly_once": not_exactly_once}
        return self._all().window(window, *aggregators, state=state, fields=fields, **given)

    def group_by(self, *fields: str) -> GroupedBatches[R_co]:
        """Rows with equal values of `fields` are a group."""
        where = self._where("group_by")
        if not fields:
            raise TopologyError(f"{where} needs a field, one of: {', '.join(self.schema.fields)}")
        for name in fields:
            self.schema.check_field(name, where)
        return GroupedBatches(self, fields)

    def min_by(self, field: str) -> BatchStream[R_co]:
        """The row of each batch with the least value of `field`, the first of equal ones."""
        return self._ranked(field, 1, "min_by", greatest=False)

    def max_by(self, field: str) -> BatchStream[R_co]:
        """The row of each batch with the greatest value of `field`."""
        return self._ranked(field, 1, "max_by", greatest=True)

    def top(self, n: int, field: str) -> BatchStream[R_co]:
        """The `n` rows of each batch with the greatest values of `field`, greatest first."""
        return self._ranked(field, n, "top", greatest=True)

    # ---- states --------------------------------------------------------------------------------

    def partition_persist(
        self,
        state: StateFactory,
        updater: Callable[..., Any],
        *,
        fields: Columns | None = None,
        name: str | None = None,
        not_exactly_once: bool = False,
    ) -> BatchState[Any]:
        """Hand the rows of each batch, in each task, to `updater(state, rows)`, when it commits.

        What it yields are the new values. The state is called `name`, or as the function is.
        Say first which task gets which rows: `partition_by`, or `global_`.
        """
        where = self._where("partition_persist", updater)
        return persist_partition(self, state, updater, fields, name, where, not_exactly_once)

    def state_query(
        self,
        state: BatchState[Any] | StateFactory,
        function: Callable[..., Any] | None = None,
        *,
        fields: str | Columns = "value",
    ) -> BatchStream[Any]:
        """Each row, and what a state answers to it: `function(state, rows)` gives an answer a row.

        Without a function, the value of the one group of a state that is not grouped. `fields` are
        those of the answer, or a record type for row and answer together. A state of this program
        is asked where it is written, in the commit phase; say first which task of it gets which
        rows.
        """
        return query(self, (), state, function, fields, self._where("state_query", function))

    # ---- several streams -----------------------------------------------------------------------

    def merge(self, *others: BatchStream[R_co]) -> BatchStream[R_co]:
        """The rows of all, batch by batch. Their records must be the same."""
        where = self._where("merge")
        tips = tips_of([self, *others], where)
        for other in others:
            if other.schema != self.schema:
                raise RecordMismatch(
                    f"{where}: one stream carries {self.schema.name}, another one "
                    f"{other.schema.name}; make them the same first, with .map"
                )
        return BatchStream(Mixed(self.schema, tuple(tips)))

    def join(
        self,
        other: BatchStream[Any],
        on: str | Sequence[str],
        other_on: str | Sequence[str] | None = None,
        *,
        how: Literal["inner", "left"] = "inner",
        fields: Columns | None = None,
        parallelism: int = 1,
    ) -> BatchStream[Any]:
        """Rows of both with equal values of `on`, within a batch: (key, rest of ours, of theirs).

        A left join keeps rows without a partner, with None in its place.
        """
        where = self._where("join")
        tips = tips_of([self, other], where)
        ours, theirs = join_keys(on, other_on, how, where)
        for stream, names in ((self, ours), (other, theirs)):
            for name in names:
                stream.schema.check_field(name, where)
        left, right = (self.schema, ours), (other.schema, theirs)
        names = (*ours, *rest_of(*left), *rest_of(*right))
        out = declared_schema(names, ours, fields, where)
        stage = self.stage(parallelism)
        inputs = tuple(
            (send(tip, ByFields(tip.schema, names), stage),)
            for tip, names in zip(tips, (ours, theirs), strict=True)
        )
        operator = Join(left, right, out, keep_left=how == "left")
        return BatchStream(Made(out, stage, operator, inputs))

    # ---- repartitionings -----------------------------------------------------------------------

    def shuffle(self, *, parallelism: int = 1) -> BatchStream[R_co]:
        """Evenly over `parallelism` tasks."""
        return self.shared(Even(), parallelism)

    def partition_by(self, *fields: str, parallelism: int = 1) -> BatchStream[R_co]:
        """Equal values of `fields` to the same of `parallelism` tasks."""
        self.group_by(*fields)
        return self.shared(ByFields(self.schema, fields), parallelism)

    def broadcast(self, *, parallelism: int = 1) -> BatchStream[R_co]:
        """All rows to each of `parallelism` tasks."""
        return self.shared(ToAll(), parallelism)

    def global_(self) -> BatchStream[R_co]:
        """All rows to one task."""
        return self.shared(ToFirst(), 1)

    def batch_global(self, *, parallelism: int = 1) -> BatchStream[R_co]:
        """All rows of a batch to one of `parallelism` tasks, of the next one to the next."""
        return self.shared(ByBatch(), parallelism)

    def partition(self, grouping: CustomGrouping, *, parallelism: int = 1) -> BatchStream[R_co]:
        """As `grouping` says; it calls the tasks 0, 1, 2 and so on.

        A transactional state behind it counts once only if `choose` looks at nothing but the row.
        """
        if not (hasattr(grouping, "prepare") and hasattr(grouping, "choose")):
            raise TopologyError(
                f"{self._where('partition')} needs an object with prepare(targets) and "
                "choose(record), as in CustomGrouping"
            )
        return self.shared(Chosen(grouping), parallelism)

    def named(self, id: str) -> BatchStream[R_co]:
        """The same; the bolt that its rows are in is called `id`."""
        name_stage(self.tip, id, self._where("named"))
        return self

    def records(self, id: str, *, parallelism: int = 1) -> Stream[R_co]:
        """These rows as a stream of ordinary tuples, for ordinary bolts, at least once: a batch is
        done when they have acked its rows, and one that is repeated has them anew. `id` is that of
        the bolt that takes them out of their batches."""
        return leave(self.tip, id, parallelism, self._where(f"records({id!r})"))

    # ---- for the other words -------------------------------------------------------------------

    def then(self, operator: Operator, schema: Schema) -> BatchStream[Any]:
        """What `operator` makes of these rows, in the stage where they are."""
        inputs = gather(self.tip)
        return BatchStream(Made(schema, inputs[0].stage, operator, (inputs,)))

    def shared(self, sharing: Sharing, parallelism: int) -> BatchStream[R_co]:
        """These rows in a stage of their own."""
        return BatchStream(send(self.tip, sharing, self.stage(parallelism)))

    def stage(self, parallelism: int) -> StageDraft:
        """A new stage of the same group."""
        return StageDraft(self.tip.stage.group, self.tip.stage.root, parallelism)

    def _spread(self, operator: Callable[[], Operator], schema: Schema) -> BatchStream[Any]:
        """An operator that needs no other rows: where each stage of a merged stream has them."""
        stages: dict[StageDraft, list[Tip]] = {}
        for part in self.tip.parts():
            stages.setdefault(part.stage, []).append(part)
        made = tuple(
            Made(schema, stage, operator(), (tuple(parts),)) for stage, parts in stages.items()
        )
        return BatchStream(made[0] if len(made) == 1 else Mixed(schema, made))

    def _ranked(self, field: str, n: int, word: str, *, greatest: bool) -> BatchStream[R_co]:
        where = self._where(word)
        self.schema.check_field(field, where)
        if type(n) is not int or n < 1:
            raise TopologyError(f"{where}: n is {n!r}; it is a number of rows, at least 1")
        best = self._spread(
            lambda: Ranking(self.schema, field, n, greatest=greatest), self.schema
        ).global_()
        return best.then(Ranking(self.schema, field, n, greatest=greatest), self.schema)

    def _all(self) -> GroupedBatches[R_co]:
        return GroupedBatches(self, ())

    def _where(self, word: str, code: Any = None) -> str:
        return self.tip.stage.where(word if code is None else f"{word}({code_name(code)})")
