"""Aggregation of grouped rows, or of all rows as one group: in batches, states and windows.

Storm: org.apache.storm.trident.fluent.GroupedStream, and Stream where nothing is grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.components import Out
from sunshower.topologies.outputs import Columns
from sunshower.topologies.signatures import name_of
from sunshower.trident.declaration.aggregators import (
    Aggregating,
    CombinerAggregator,
    ReducerAggregator,
)
from sunshower.trident.declaration.declaring import check_aggregators, declared_schema
from sunshower.trident.declaration.persisted import BatchState, new_state, query
from sunshower.trident.declaration.windows import Window
from sunshower.trident.stages.aggregating import Aggregate, Combine, CombineFurther, Empty
from sunshower.trident.stages.persisting import Persist, PersistCombined, PersistReduced
from sunshower.trident.stages.sharing import ByBatch, ByFields, ToFirst
from sunshower.trident.stages.windowing import Windows
from sunshower.trident.states.port import StateFactory

if TYPE_CHECKING:
    from sunshower.trident.declaration.streams import BatchStream

R_co = TypeVar("R_co", covariant=True)


class GroupedBatches(Generic[R_co]):
    """Rows of batches, grouped by the values of the fields `by`. Its methods raise like those of
    BatchStream. They emit plain tuples of the fields `by` and of what the aggregators emit;
    `fields` may give a record type or other names."""

    def __init__(self, stream: BatchStream[R_co], by: Sequence[str]) -> None:
        self.stream, self.by = stream, tuple(by)

    def partition_aggregate(
        self, *aggregators: Aggregating, fields: Columns | None = None
    ) -> BatchStream[Any]:
        """Aggregate the rows of each group within each task, without repartitioning."""
        given, out = self._checked("partition_aggregate", aggregators, fields)
        empty = Empty.NOBODY if self.by else Empty.EACH
        schema = self.stream.schema
        return self.stream.then(Aggregate(schema, self.by, given, out, empty), out)

    @overload
    def aggregate(
        self, *aggregators: Aggregating, fields: type[Out], parallelism: int = 1
    ) -> BatchStream[Out]: ...
    @overload
    def aggregate(
        self, *aggregators: Aggregating, fields: Sequence[str] | None = None, parallelism: int = 1
    ) -> BatchStream[tuple[Any, ...]]: ...
    def aggregate(
        self, *aggregators: Aggregating, fields: Columns | None = None, parallelism: int = 1
    ) -> BatchStream[Any]:
        """Aggregate each group of a batch. Combiners first combine the rows within their task."""
        given, out = self._checked("aggregate", aggregators, fields)
        empty = Empty.NOBODY if self.by else Empty.ONE
        if all(isinstance(one, CombinerAggregator) for one in given):
            here = self._combined(given)
            last: Aggregate = CombineFurther(here.schema, self.by, given, out, empty)
        else:
            here = self.stream
            last = Aggregate(here.schema, self.by, given, out, empty)
        if self.by:
            return here.shared(ByFields(here.schema, self.by), parallelism).then(last, out)
        return here.shared(ByBatch(), parallelism).then(last, out)

    @overload
    def persistent_aggregate(
        self,
        state: StateFactory,
        aggregator: Aggregating,
        *,
        parallelism: int = 1,
        fields: type[Out],
        name: str | None = None,
        not_exactly_once: bool = False,
    ) -> BatchState[Out]: ...
    @overload
    def persistent_aggregate(
        self,
        state: StateFactory,
        aggregator: Aggregating,
        *,
        parallelism: int = 1,
        fields: Sequence[str] | None = None,
        name: str | None = None,
        not_exactly_once: bool = False,
    ) -> BatchState[tuple[Any, ...]]: ...
    def persistent_aggregate(
        self,
        state: StateFactory,
        aggregator: Aggregating,
        *,
        parallelism: int = 1,
        fields: Columns | None = None,
        name: str | None = None,
        not_exactly_once: bool = False,
    ) -> BatchState[Any]:
        """Aggregate each group over all batches in a state.

        The state is written in the commit phase, in txid order. `name` (default: the aggregator's
        field) identifies it for later runs. Its keys are the values of the single field `by`,
        tuples of several, or "$GLOBAL$" without a grouping. Raises TopologyError if spout and state
        together are not exactly once, unless `not_exactly_once` accepts that.
        """
        (given,), out = self._checked("persistent_aggregate", (aggregator,), fields)
        where = self._where("persistent_aggregate")
        if isinstance(given, CombinerAggregator):
            here, result = self._combined([given]), given.result
        elif isinstance(given, ReducerAggregator):
            here, result = self.stream, None
        else:
            raise TopologyError(
                f"{where}: {name_of(type(given))} is an Aggregator, which a state has no value "
                "for; give a CombinerAggregator or ReducerAggregator, or .aggregate first"
            )
        own = name or given.emits[0]
        slot = new_state(state, own, self.stream.tip, where, not_exactly_once)
        operator: Persist = (
            PersistCombined(slot, len(self.by), given, out)
            if isinstance(given, CombinerAggregator)
            else PersistReduced(slot, self.stream.schema, self.by, given, out)
        )
        made = self._shared(here, parallelism).then(operator, out)
        return BatchState(made, slot, self.by, result)

    def window(
        self,
        window: Window,
        *aggregators: Aggregating,
        state: StateFactory,
        parallelism: int = 1,
        fields: Columns | None = None,
        name: str = "windows",
        not_exactly_once: bool = False,
    ) -> BatchState[Any]:
        """Aggregate each group in each window: (group, window, aggregated values). `window` is the
        end of a time window or the number of a count window. The state `name` holds the contents of
        open windows and is written as a whole in the commit phase of each batch."""
        where = self._where("window")
        if not isinstance(window, Window):
            raise TopologyError(f"{where}: {window!r} is no window; give tumbling(…) or sliding(…)")
        if window.field is not None:
            self.stream.schema.check_field(window.field, where)
        given, out = self._checked("window", aggregators, fields, ("window",))
        slot = new_state(state, name, self.stream.tip, where, not_exactly_once)
        operator = Windows(slot, window, self.stream.schema, self.by, given, out)
        made = self._shared(self.stream, parallelism).then(operator, out)
        return BatchState(made, slot, self.by, None)

    def state_query(
        self,
        state: BatchState[Any] | StateFactory,
        function: Callable[..., Any] | None = None,
        *,
        fields: str | Columns = "value",
        parallelism: int = 1,
    ) -> BatchStream[Any]:
        """Each row with the value of its group in a state, or with what `function(state, rows)`
        returns. Rows go to the state's tasks by their group; `parallelism` applies to a static
        state."""
        where = self._where("state_query")
        return query(self.stream, self.by, state, function, fields, where, parallelism)

    def _combined(self, given: Sequence[Aggregating]) -> BatchStream[Any]:
        """Combined rows (fields of the group, a value for each combiner), still in their tasks."""
        values = (f"value-{number}" for number in range(len(given)))
        schema = Schema((*self.by, *values))
        stream = self.stream
        return stream._spread(lambda: Combine(stream.schema, self.by, given), schema)

    def _shared(self, here: BatchStream[Any], parallelism: int) -> BatchStream[Any]:
        if self.by:
            return here.shared(ByFields(here.schema, self.by), parallelism)
        return here.shared(ToFirst(), 1)

    def _checked(
        self,
        word: str,
        given: Sequence[Aggregating],
        fields: Columns | None,
        more: Sequence[str] = (),
    ) -> tuple[tuple[Any, ...], Schema]:
        where = self._where(word)
        check_aggregators(given, where)
        bound = tuple(one.bind(self.stream.schema, where) for one in given)
        names = [*self.by, *more, *(name for one in bound for name in one.emits)]
        return cast("tuple[Any, ...]", bound), declared_schema(names, self.by, fields, where)

    def _where(self, word: str) -> str:
        grouped = f"group_by({', '.join(self.by)}), " if self.by else ""
        return self.stream.tip.stage.where(grouped + word)
