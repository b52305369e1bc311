"""Streams of batches, and the methods that declare how their rows are processed.

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
from sunshower.trident.declaration.aggregators import Aggregating
from sunshower.trident.declaration.declaring import (
    check_predicate,
    check_reader,
    code_name,
    columns_schema,
    declared_schema,
    each_schema,
    join_keys,
    map_schema,
)
from sunshower.trident.declaration.drafts import (
    Made,
    Mixed,
    StageDraft,
    Tip,
    gather,
    name_stage,
    send,
    tips_of,
)
from sunshower.trident.declaration.grouped import GroupedBatches
from sunshower.trident.declaration.persisted import (
    BatchState,
    check_pairs,
    persist_partition,
    query,
)
from sunshower.trident.declaration.windows import Window
from sunshower.trident.stages import steps
from sunshower.trident.stages.joining import Join, rest_of
from sunshower.trident.stages.plan import Sharing
from sunshower.trident.stages.port import Operator, publishing
from sunshower.trident.stages.ranking import Ranking
from sunshower.trident.stages.sharing import ByBatch, ByFields, Chosen, Even, ToAll, ToFirst
from sunshower.trident.states.port import StateFactory, StateKind
from sunshower.trident.tasks.leaving import leave

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class BatchStream(Generic[R_co]):
    """A stream of rows in batches. The methods raise TopologyError or a subclass for a declaration
    that cannot work: UnknownField, RecordMismatch for annotations that do not fit,
    DuplicateComponent."""

    input_hint = 'let its rows leave their batches first: .records("rows").shuffle()'

    def __init__(self, tip: Tip) -> None:
        self.tip = tip

    @property
    def schema(self) -> Schema:
        """The fields and the record type of its rows."""
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
        """What `function` yields, or returns in a list, for each row, as a bolt function does.

        A function marked with `@batch` gets many rows as an Arrow table and returns Derived, a
        table or None; `fields` gives its record type or columns. A callable object may have
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
        """Call `function` for each row and pass all rows on. Repeated attempts call it again."""
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
        """Run your own operator in the stage of the rows; see `stages/port.py`.

        With `others`, one task gets all rows of a batch: this stream is input 0, the others are 1,
        2 …. `fields` is () if it emits nothing. An operator that `commits` or `publishes` must undo
        what an earlier attempt has written, as an opaque state does.
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
        """Return `assembly(self)`: for a part of a program that has its own name."""
        FUNCTION.check(self._where("apply"), assembly, TopologyError)
        return assembly(self)

    # ---- all rows of a batch -------------------------------------------------------------------

    def partition_aggregate(
        self, *aggregators: Aggregating, fields: Columns | None = None
    ) -> BatchStream[Any]:
        """Aggregate the rows of each task without repartitioning: one row per task."""
        return self._all().partition_aggregate(*aggregators, fields=fields)

    def aggregate(
        self, *aggregators: Aggregating, fields: Columns | None = None, parallelism: int = 1
    ) -> BatchStream[Any]:
        """Aggregate all rows of a batch into one row, also for an empty batch. Several aggregators
        make one row together. Combiners first combine the rows within their task."""
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
        """Aggregate all rows of all batches in a state; see GroupedBatches."""
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
        """Aggregate the rows of each window; see GroupedBatches."""
        given: dict[str, Any] = {"name": name, "not_exactly_once": not_exactly_once}
        return self._all().window(window, *aggregators, state=state, fields=fields, **given)

    def group_by(self, *fields: str) -> GroupedBatches[R_co]:
        """Group rows with equal values of `fields`."""
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
        """Call `updater(state, rows)` in each task with the rows of a batch, when it commits. What
        the updater yields are the new values. `name` (default: the function's name) identifies the
        state. Choose the task of each row before: `partition_by`, or `global_`."""
        where = self._where("partition_persist", updater)
        return persist_partition(self, state, updater, fields, name, where, not_exactly_once)

    def state_query(
        self,
        state: BatchState[Any] | StateFactory,
        function: Callable[..., Any] | None = None,
        *,
        fields: str | Columns = "value",
    ) -> BatchStream[Any]:
        """Each row with an answer of a state: `function(state, rows)` returns one answer per row.

        Without a function, the answer is the single value of an ungrouped state. `fields` names the
        answer's fields, or is a record type for row and answer together. A state of this program is
        queried by the tasks that write it, in the commit phase; choose the task of each row before.
        """
        return query(self, (), state, function, fields, self._where("state_query", function))

    # ---- several streams -----------------------------------------------------------------------

    def merge(self, *others: BatchStream[R_co]) -> BatchStream[R_co]:
        """The rows of all streams, batch by batch. Their record types must be equal."""
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
        """Join rows with equal values of `on` within a batch: (key, other fields of self, of
        `other`). A left join keeps rows without a match, with None for the missing fields."""
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
        """Distribute rows evenly over `parallelism` tasks."""
        return self.shared(Even(), parallelism)

    def partition_by(self, *fields: str, parallelism: int = 1) -> BatchStream[R_co]:
        """Send equal values of `fields` to the same of `parallelism` tasks."""
        self.group_by(*fields)
        return self.shared(ByFields(self.schema, fields), parallelism)

    def broadcast(self, *, parallelism: int = 1) -> BatchStream[R_co]:
        """Send all rows to each of `parallelism` tasks."""
        return self.shared(ToAll(), parallelism)

    def global_(self) -> BatchStream[R_co]:
        """Send all rows to one task."""
        return self.shared(ToFirst(), 1)

    def batch_global(self, *, parallelism: int = 1) -> BatchStream[R_co]:
        """Send all rows of a batch to one of `parallelism` tasks, chosen round-robin by txid."""
        return self.shared(ByBatch(), parallelism)

    def partition(self, grouping: CustomGrouping, *, parallelism: int = 1) -> BatchStream[R_co]:
        """Distribute rows as `grouping` chooses; it numbers the tasks 0, 1, 2 and so on. A
        transactional state behind it is exact only if `choose` depends on nothing but the row."""
        if not (hasattr(grouping, "prepare") and hasattr(grouping, "choose")):
            raise TopologyError(
                f"{self._where('partition')} needs an object with prepare(targets) and "
                "choose(record), as in CustomGrouping"
            )
        return self.shared(Chosen(grouping), parallelism)

    def named(self, id: str) -> BatchStream[R_co]:
        """Set the id of the bolt that processes these rows."""
        name_stage(self.tip, id, self._where("named"))
        return self

    def records(self, id: str, *, parallelism: int = 1) -> Stream[R_co]:
        """These rows as ordinary tuples for ordinary bolts, at least once. A batch is done when its
        rows are acked; a repeated batch emits them again. `id` names the bolt that emits them."""
        return leave(self.tip, id, parallelism, self._where(f"records({id!r})"))

    # ---- used by the other modules --------------------------------------------------------------

    def then(self, operator: Operator, schema: Schema) -> BatchStream[Any]:
        """What `operator` emits for these rows, in the stage where they are."""
        inputs = gather(self.tip)
        return BatchStream(Made(schema, inputs[0].stage, operator, (inputs,)))

    def shared(self, sharing: Sharing, parallelism: int) -> BatchStream[R_co]:
        """These rows in a new stage."""
        return BatchStream(send(self.tip, sharing, self.stage(parallelism)))

    def stage(self, parallelism: int) -> StageDraft:
        """A new stage of the same group."""
        return StageDraft(self.tip.stage.group, self.tip.stage.root, parallelism)

    def _spread(self, operator: Callable[[], Operator], schema: Schema) -> BatchStream[Any]:
        """Apply an operator that needs no other rows in each stage that has rows of a merged
        stream."""
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
