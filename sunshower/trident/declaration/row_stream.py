"""Methods of streams of batches that do not change rows: filters and repartitionings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar, Unpack

from sunshower.arguments import FUNCTION, check_names
from sunshower.config import NOTHING, Resources
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.groupings import CustomGrouping
from sunshower.topologies.operators.aggregating import Combine
from sunshower.topologies.operators.aggregators import AnyAggregator
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.ranking import ExtremeRow
from sunshower.topologies.operators.record_operators import RecordOperators
from sunshower.topologies.operators.schemas import (
    check_equal,
    check_fields,
    code_name,
)
from sunshower.topologies.operators.updates.update_rows import Lineage, TagUpdates, merged_lineage
from sunshower.topologies.outputs import check_id
from sunshower.topologies.streams import Stream
from sunshower.trident.declaration.stage_builder import RowSource, StageBuilder, TaskSettings
from sunshower.trident.stages.plan import Sharing
from sunshower.trident.stages.sharing import (
    ByBatch,
    ByFields,
    ByGrouping,
    RoundRobin,
    ToAll,
    ToFirst,
)
from sunshower.trident.tasks.records_bolt import RecordsBolt

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class RowStream(RecordOperators[R_co]):
    """Rows of one schema in batches. Those of a merged stream have several sources."""

    input_hint = 'let its rows leave their batches first: .records("rows").shuffle()'

    def __init__(self, *sources: RowSource) -> None:
        self.sources = sources
        self._gathered: RowSource | None = None

    @property
    def schema(self) -> Schema:
        """The fields and the record type of its rows."""
        return self.sources[0].schema

    @property
    def stage(self) -> StageBuilder:
        """The stage of its rows, or the first of several."""
        return self.sources[0].stage

    @property
    def is_uneven(self) -> bool:
        """As RowSource.is_uneven. Rows of several stages are gathered round-robin."""
        several = len({source.stage for source in self.sources}) > 1
        return several or any(source.is_uneven for source in self.sources)

    @property
    def varies(self) -> bool:
        """As RowSource.varies."""
        return any(source.varies for source in self.sources)

    @property
    def lineage(self) -> Lineage | None:
        """If its rows follow from running totals: how."""
        return merged_lineage([source.lineage for source in self.sources])

    # ---- some of the rows, or those of several streams -----------------------------------------

    def min_by(self, field: str) -> Self:
        """The row of each batch with the least value of `field`, the first of equal ones."""
        return self._extreme(field, "min_by", greatest=False)

    def max_by(self, field: str) -> Self:
        """The row of each batch with the greatest value of `field`."""
        return self._extreme(field, "max_by", greatest=True)

    def merge(self, *others: RowStream[R_co]) -> Self:
        """The rows of all streams, batch by batch. Their record types must be equal."""
        where = self._where("merge")
        check_streams([self, *others], where)
        for other in others:
            check_equal(self.schema, other.schema, where)
        streams: tuple[RowStream[R_co], ...] = (self, *others)
        if all(one.lineage is not None for one in streams):
            streams = tuple(
                RowStream(*one.add_to_each(partial(TagUpdates, number), one.schema))
                for number, one in enumerate(streams)
            )
        return self._of(*(source for one in streams for source in one.sources))

    def named(self, id: str) -> Self:
        """Set the id of the bolt that processes these rows."""
        where = self._where("named")
        check_id(id, where)
        stage = self._gather()[0].stage
        if stage.spout is not None:
            raise TopologyError(
                f"{where}: these rows are still in the bolt of the spout {stage.root!r}, which has "
                "its name; a repartitioning begins a new one"
            )
        stage.group.program.check_open(where)
        stage.name = id
        return self

    # ---- repartitionings -----------------------------------------------------------------------

    def shuffle(self, **tasks: Unpack[TaskSettings]) -> Self:
        """Distribute rows evenly over `parallelism` tasks. `tasks`: see TaskSettings."""
        return self._of(self.send(RoundRobin(), tasks))

    def partition_by(self, *fields: str, **tasks: Unpack[TaskSettings]) -> Self:
        """Send equal values of `fields` to the same of `parallelism` tasks."""
        self._check_fields("partition_by", fields)
        return self._of(self.send(ByFields(self.schema, fields), tasks))

    def broadcast(self, **tasks: Unpack[TaskSettings]) -> Self:
        """Send all rows to each of `parallelism` tasks."""
        return self._of(self.send(ToAll(), tasks))

    def global_(self, *, resources: Resources = NOTHING) -> Self:
        """Send all rows to one task, which requests `resources` of its node."""
        return self._of(self.send(ToFirst(), {"resources": resources}))

    def batch_global(self, **tasks: Unpack[TaskSettings]) -> Self:
        """Send all rows of a batch to one of `parallelism` tasks, chosen round-robin by txid."""
        return self._of(self.send(ByBatch(), tasks))

    def partition(self, grouping: CustomGrouping, **tasks: Unpack[TaskSettings]) -> Self:
        """Distribute rows as `grouping` chooses; it numbers the tasks 0, 1, 2 and so on. A
        transactional state behind it is exact only if `choose` depends on nothing but the row."""
        if not (hasattr(grouping, "prepare") and hasattr(grouping, "choose")):
            raise TopologyError(
                f"{self._where('partition')} needs an object with prepare(targets) and "
                "choose(record), as in CustomGrouping"
            )
        return self._of(self.send(ByGrouping(grouping), tasks))

    # ---- used by the other modules -------------------------------------------------------------

    def add(self, operator: Operator, schema: Schema) -> RowSource:
        """What `operator` emits for these rows, in the stage where they are. Rows of several
        stages are sent to a new one first."""
        sources = self._gather()
        return sources[0].stage.add(operator, schema, sources)

    def add_to_each(self, operator: Callable[[], Operator], schema: Schema) -> list[RowSource]:
        """The same for an operator that needs no other rows: one in each stage that has rows."""
        stages: dict[StageBuilder, list[RowSource]] = {}
        for source in self.sources:
            stages.setdefault(source.stage, []).append(source)
        return [stage.add(operator(), schema, sources) for stage, sources in stages.items()]

    def send(self, sharing: Sharing, tasks: TaskSettings) -> RowSource:
        """These rows in a new stage."""
        return self.new_stage(tasks).receive(self.sources, sharing)

    def records(self, id: str, **tasks: Unpack[TaskSettings]) -> Stream[R_co]:
        """These rows as ordinary tuples for ordinary bolts, at least once. A batch is done when its
        rows are acked; a repeated batch emits them again. `id` names the bolt that emits them.
        Raises as Topology.bolt does."""
        group, schema = self.stage.group, self.schema
        group.program.check_open(self._where(f"records({id!r})"))
        fields = schema.fields if schema.type is tuple else schema.type
        bolt = RecordsBolt(schema)
        stream = group.program.topology.bolt(id, bolt, fields=fields, **tasks)
        stage = self.new_stage(tasks)
        stage.name, stage.leaves = id, True
        stage.add(Operator(), schema, [stage.receive(self.sources, RoundRobin())])
        if (lineage := self.lineage) is not None:
            stream._lineage = replace(lineage, blocked=lineage.blocked or "records(…)")
        return stream

    def apply(self, assembly: Callable[[Self], T]) -> T:
        """Return `assembly(self)`: for a part of a program that has its own name."""
        FUNCTION.check(self._where("apply"), assembly, TopologyError)
        return assembly(self)

    def send_groups(self, by: tuple[str, ...], tasks: TaskSettings) -> RowSource:
        """These rows in the tasks that have the state of their group; without groups it is one."""
        return self.send(ByFields(self.schema, by) if by else ToFirst(), tasks)

    def combined(self, given: Sequence[AnyAggregator], by: Sequence[str]) -> RowStream[Any]:
        """Combined rows (fields of the group, a value for each combiner), still in their tasks."""
        schema = Schema((*by, *(f"value-{number}" for number in range(len(given)))))
        return RowStream(*self.add_to_each(lambda: Combine(self.schema, by, given), schema))

    def upstream(self) -> set[StageBuilder]:
        """All stages that these rows depend on, those they are in included."""
        return {stage for source in self.sources for stage in source.stage.upstream()}

    def new_stage(self, tasks: TaskSettings) -> StageBuilder:
        """A new stage of the same group."""
        check_names(tasks, TaskSettings.__annotations__, self._where(""), TopologyError)
        return StageBuilder(self.stage.group, self.stage.root, **tasks)

    def _gather(self) -> tuple[RowSource, ...]:
        stages = {source.stage for source in self.sources}
        if len(stages) == 1:
            return self.sources
        if self._gathered is None:
            most = max(stage.parallelism for stage in stages)
            self._gathered = self.send(RoundRobin(), {"parallelism": most})
        return (self._gathered,)

    def _with(
        self, word: str, operator: Callable[[], Operator], schema: Schema, code: Any = None
    ) -> Self:
        return self._of(*self.add_to_each(operator, schema))

    def _of(self, *sources: RowSource) -> Self:
        return type(self)(*sources)

    def _extreme(self, field: str, word: str, *, greatest: bool) -> Self:
        self._check_fields(word, [field])

        def extreme() -> ExtremeRow:
            return ExtremeRow(self.schema, field, greatest=greatest)

        best = self._of(*self.add_to_each(extreme, self.schema)).global_()
        return self._of(best.add(extreme(), self.schema))

    def _check_fields(self, word: str, fields: Sequence[str]) -> None:
        check_fields(self.schema, fields, self._where(word))

    def _where(self, word: str, code: Any = None) -> str:
        return self.stage.where(word if code is None else f"{word}({code_name(code)})")


def check_streams(streams: Sequence[Any], where: str) -> None:
    """Raise TopologyError for a value that is not a stream of batches, or is of another group."""
    for stream in streams:
        if not isinstance(stream, RowStream):
            raise TopologyError(f"{where}: {stream!r:.200} is no stream of batches")
    check_group([stream.stage for stream in streams], where)


def check_group(stages: Sequence[StageBuilder], where: str) -> None:
    """Raise TopologyError for stages of several groups."""
    groups = {stage.group: stage.root for stage in stages}
    if len(groups) > 1:
        raise TopologyError(
            f"{where}: {' and '.join(map(repr, groups.values()))} are of different groups, whose "
            "batches have nothing to do with each other; declare them with the same group, as in "
            'batches(…, group="orders")'
        )
