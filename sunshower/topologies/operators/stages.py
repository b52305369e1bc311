"""Stages of ordinary streams while they are declared: trees of operators, compiled into bolts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypedDict

from sunshower.config import NOTHING, Resources
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.async_functions import check_call_time, limits_of
from sunshower.topologies.graph import Component, Graph, StreamSpec
from sunshower.topologies.operators.aggregators import (
    AnyAggregator,
    CombinerAggregator,
    ReducerAggregator,
)
from sunshower.topologies.operators.compiled_stage import Branch, OperatorBolt
from sunshower.topologies.operators.joins.stream_join import JoinInput
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.record_operators import PAIRS
from sunshower.topologies.operators.schemas import bound_aggregators, code_name
from sunshower.topologies.operators.state_slot import StateSlot
from sunshower.topologies.operators.states import StateFactory
from sunshower.topologies.operators.steps import RowFunction, RowOperator, TakeBranch
from sunshower.topologies.operators.totals import Persist, single, totals_operators
from sunshower.topologies.operators.updates import (
    Lineage,
    PlainRows,
    UpdatedTotals,
    check_replaces,
    moved_origins,
    of_updates,
    totals_lineage,
    update_schema,
    updated_operators,
)
from sunshower.topologies.operators.windows.event_times import TimeField
from sunshower.topologies.operators.windows.window_operator import TimedProcess, WindowOperator
from sunshower.topologies.outputs import Columns


class Declarations(Protocol):
    """What a stream needs of its topology."""

    id: str

    @property
    def bolt(self) -> Callable[..., Any]: ...
    def component(self, id: str) -> Component: ...
    def unused_id(self, wish: str) -> str: ...
    def check_new(self, id: str, parallelism: int, where: str) -> None: ...
    def begin_stage(
        self,
        id: str,
        inputs: Sequence[Any],
        parallelism: int,
        resources: Resources = NOTHING,
    ) -> StageRows: ...
    def declare_stream(self, component: str, spec: StreamSpec) -> None: ...
    def add_input(self, bolt: str, grouped: Any) -> None: ...
    def answer(self, stream: Any) -> None: ...
    def read_updates(self, stage: StageDraft) -> None: ...


@dataclass(eq=False)
class StageRows:
    """The rows that an operator emits, or those that arrive at the stage (`operator` None)."""

    stage: StageDraft
    schema: Schema
    operator: Operator | None = None
    stream: str | None = None  # the stream that they leave on, once something outside reads them
    readers: list[StageRows] = field(default_factory=list)  # within the stage
    lineage: Lineage | None = None  # if they follow from running totals
    updates: str | None = None  # the stream that they leave on as updates, if something reads these
    makes_updates: bool = False  # whether its operator makes updates of the rows of a join
    read_elsewhere: list[StageRows] = field(default_factory=list)  # of stages that read the updates

    @property
    def has_columns(self) -> bool:
        """Whether these rows are Arrow tables."""
        if self.operator is None:
            return self.stage.has_columns
        return self.operator.makes_tables

    def then(self, operator: Operator, schema: Schema) -> StageRows:
        """The rows that `operator` makes of these, in the same stage."""
        lineage = self.lineage and self.lineage.behind(operator, schema)
        self.readers.append(StageRows(self.stage, schema, operator, lineage=lineage))
        return self.readers[-1]

    @property
    def needs_updates(self) -> bool:
        """Whether something reads these rows as updates."""
        return self.updates is not None or any(
            reader.operator.reads_updates or reader.needs_updates
            for reader in self.readers
            if reader.operator is not None
        )

    @property
    def shows(self) -> bool:
        """Whether something reads plain rows of these, if they are updates."""
        return (
            self.stream in self.stage.subscribed
            or any(rows.shows for rows in self.read_elsewhere)
            or any(
                reader.shows if reader.needs_updates else _shows(reader.operator)
                for reader in self.readers
                if reader.operator is not None
            )
        )

    def compiled(self, *, arrive: bool) -> StageRows:
        """A copy in which rows are passed on as updates as far as something reads them so.
        `arrive`: whether updates arrive at its operator."""
        operator, emits = self.operator, arrive
        if operator is not None and arrive:
            emits = not operator.reads_updates
            operator = of_updates(operator, self.schema, shows=self.shows) if emits else operator
        elif isinstance(operator, Persist) and self.needs_updates:
            operator.emits_updates, operator.shows, emits = True, self.shows, True
        elif self.makes_updates:
            emits = True
        if not emits:
            readers = [reader.compiled(arrive=False) for reader in self.readers]
            return replace(self, operator=operator, readers=readers)
        plain, passed = list[StageRows](), list[StageRows]()
        for reader in self.readers:
            assert reader.operator is not None
            reads = reader.operator.reads_updates or reader.needs_updates
            (passed if reads else plain).append(reader.compiled(arrive=reads))
        if plain or self.stream is not None:
            passed.append(StageRows(self.stage, self.schema, PlainRows(), self.stream, plain))
        schema = update_schema(self.schema)
        return StageRows(self.stage, schema, operator, self.updates, passed)

    def branch(self) -> Branch:
        """This node and its readers, frozen."""
        readers = tuple(one.branch() for one in self.readers)
        return Branch(self.operator, self.stream, self.schema, readers)


def _shows(operator: Operator) -> bool:
    """Whether an operator makes plain rows of updates, or may let others do it."""
    if isinstance(operator, JoinInput):
        return operator.number > 0
    return not operator.reads_updates


@dataclass
class WindowDraft:
    """What makes a stage a window: `operator` adds rows to it, and watermarks bring `ended`."""

    fields: Sequence[TimeField | None]  # of each input: its event time; None: the clock
    operator: WindowOperator
    ended: StageRows
    take_late: Callable[[], StageRows] | None = None  # None: there are none


class StageDraft:
    """A stage, which will be the bolt `id`."""

    def __init__(self, id: str, schema: Schema, *, has_columns: bool) -> None:
        self.id, self.has_columns = id, has_columns
        self.input = StageRows(self, schema)
        self.window: WindowDraft | None = None  # if the stage is one
        self.silent_inputs = 0  # the first ones, if no rows are made of their records
        self.inputs: Sequence[Any] = ()  # the grouped streams whose rows arrive
        self.reads_updates = False  # whether they arrive as updates
        self.subscribed: frozenset[str | None] = frozenset()  # its streams that others read
        # of a table: what lets the records that are joined with it come as updates
        self.on_updates: list[Callable[[], None]] = []
        self.is_awaited = False  # whether records of other inputs wait until these are read
        self.is_in_memory = False  # of a table: whether it is lost with its process
        self._words: Counter[str] = Counter()

    def end_by(
        self, field: TimeField | None, operator: WindowOperator, schema: Schema
    ) -> StageRows:
        """Make this stage a window. Returns the rows of windows that have ended."""
        late = self.input.then(operator, schema)
        self.window = WindowDraft([field], operator, StageRows(self, schema), lambda: late)
        return self.window.ended

    def join_by(
        self, fields: Sequence[TimeField], operator: WindowOperator, schema: Schema
    ) -> StageRows:
        """Make this stage a join, whose operator makes (branch, record) of its rows: 0 for the
        joined ones, which watermarks bring, too, and 1 for the late ones. Returns the joined."""
        pairs = self.input.then(operator, PAIRS)
        joined = pairs.then(TakeBranch(0), schema)
        late = lambda: pairs.then(TakeBranch(1), schema)  # noqa: E731
        self.window = WindowDraft(fields, operator, joined, late)
        return joined

    def process_by(self, operator: KeyedProcess) -> StageRows:
        """Make this stage a process. Returns its rows, which watermarks bring, too, if it has
        timers."""
        rows = self.input.then(operator, operator.schema)
        if isinstance(operator, TimedProcess):
            self.window = WindowDraft([operator.event_time], operator, rows)
        return rows

    @cached_property
    def late(self) -> StageRows:
        """Of a window or a join: rows that came too late. Unless it is asked for, nothing reads
        them."""
        assert self.window is not None
        assert self.window.take_late is not None
        return self.window.take_late()

    def new_stream(self, word: str) -> str:
        """A stream id for what an operator emits: its word, numbered from the second."""
        self._words[word] += 1
        return word if self._words[word] == 1 else f"{word}-{self._words[word]}"

    def compiled(self) -> OperatorBolt:
        """The bolt. Its functions run input by input as far as the rows have one reader."""
        node, steps = self.input, list[RowOperator]()
        if self.window is None:
            node = node.compiled(arrive=self.reads_updates)
        while node.stream is None and len(node.readers) == 1:
            (reader,) = node.readers
            if not isinstance(reader.operator, RowOperator):
                break
            steps.append(reader.operator)
            node = reader
        branches = tuple(reader.branch() for reader in node.readers)
        root = Branch(None, node.stream, node.schema, branches)
        if (window := self.window) is None:
            bolt = OperatorBolt(steps, root, node.schema)
        else:
            ended = window.ended.branch()
            if ended.operator is window.operator:
                ended = replace(ended, operator=None)
            bolt = OperatorBolt(steps, root, node.schema, window.operator, ended)
        self._check_calls(bolt, steps)
        return bolt

    def _check_calls(self, bolt: OperatorBolt, steps: Sequence[RowOperator]) -> None:
        """Raise TopologyError for calls without order which the stage would make for all rows of a
        batch, or whose failure would find a state changed."""
        for one in self.input.branch().operators():
            if not isinstance(one, RowFunction) or one.ordered:
                continue
            if bolt.keeps_state or one not in steps:
                raise TopologyError(
                    f"stage {self.id!r}: {code_name(one.function)} is asynchronous(ordered=False), "
                    "so it is the first function of a stage that nothing else reads, or follows "
                    'plain functions: put .local_or_shuffle().stage("calls") before it'
                )


def check_call_times(graph: Graph) -> None:
    """Raise TopologyError for calls in order that may take longer than a task may be within one."""
    for bolt in graph.bolts:
        code, where = bolt.implementation, f"topology {graph.id!r}, bolt {bolt.id!r}"
        limits = code.call_limits if isinstance(code, OperatorBolt) else [limits_of(code)]
        for one in limits:
            if one is not None and one.ordered:
                check_call_time(one, graph.config.block_max_s, where)


# ---- totals stage --------------------------------------------------------------------------------


class TotalsSettings(TypedDict, total=False):
    """The settings of `aggregate` and `window`: where values are kept, and by how many tasks.

    - `state`: where they are; None: in the memory of their task, lost with its process
    - `parallelism`: the number of tasks, 1; another one takes a stored state over
    - `name`: of the bolt and of the state, by which a later run finds it
    - `resources`: what each task requests of its node
    """

    state: StateFactory | None
    parallelism: int
    name: str | None
    resources: Resources


class AnyStream(Protocol):
    """What a stage needs of the stream that it reads."""

    topology: Declarations

    @property
    def schema(self) -> Schema: ...
    @property
    def lineage(self) -> Lineage | None: ...
    def need_updates(self) -> None: ...
    def then(self, word: str, operator: Operator, schema: Schema) -> Any: ...
    def fields(self, *fields: str) -> Any: ...
    def global_(self) -> Any: ...


def totals_of(
    stream: AnyStream,
    by: Sequence[str],
    aggregators: Sequence[AnyAggregator],
    fields: Columns | None,
    settings: TotalsSettings,
) -> StageRows:
    """Declare the totals of a stream, grouped by the fields `by`. Raises TopologyError."""
    where = location(stream, by, "aggregate")
    given, out = bound_aggregators(aggregators, stream.schema, by, fields, where)
    one = single(given, by, settings.get("parallelism", 1), where)
    id = free_id(stream.topology, settings, "-".join(one.emits), where)
    if (lineage := stream.lineage) is not None:
        check_replaces(lineage, where)
        return _updated_totals(stream, by, one, out, id, settings, where)
    slot = StateSlot(settings.get("state"), id, where)
    combine, operator = totals_operators(slot, stream.schema, by, one, out)
    combined = None if combine is None else (combine, Schema((*by, "value-0")))
    rows = grouped_stage(stream, by, id, settings, where, combined=combined).then(operator, out)
    rows.lineage = totals_lineage(by)
    return rows


def _updated_totals(
    stream: AnyStream,
    by: Sequence[str],
    one: CombinerAggregator[Any, Any] | ReducerAggregator[Any, Any],
    out: Schema,
    id: str,
    settings: TotalsSettings,
    where: str,
) -> StageRows:
    """The totals of rows that follow from other totals: of the last row of each of their groups."""
    parallelism, lineage = settings.get("parallelism", 1), stream.lineage
    assert lineage is not None
    stream.topology.check_new(id, parallelism, where)
    slot = StateSlot(settings.get("state"), id, where, moved_origins)
    combiner, divide = updated_operators(stream.schema, by, one, lineage)
    stream.need_updates()
    if divide.places is not None:
        parts = stream.then("parts", divide, divide.out)
        inputs = [parts.fields("key") if by else parts.global_()]
    else:
        pairs = stream.then("parts", divide, PAIRS)
        parts, groups = (pairs.then("parts", TakeBranch(n), divide.out) for n in (0, 1))
        inputs = [parts.fields("key"), groups.all()]
    resources = settings.get("resources", NOTHING)
    rows = stream.topology.begin_stage(id, inputs, parallelism, resources)
    made = rows.then(UpdatedTotals(slot, len(by), combiner, out), out)
    made.lineage = totals_lineage(by)
    return made


def free_id(topology: Declarations, settings: Mapping[str, Any], wish: str, where: str) -> str:
    """The id of a bolt and of its state: its `name`, or one like `wish`. Raises TopologyError for a
    stored state whose name would depend on others."""
    name = settings.get("name")
    id: str = topology.unused_id(wish) if name is None else name
    if settings.get("state") is not None and settings.get("name") is None and id != wish:
        raise TopologyError(f"{where}: there is a {wish!r} already; give this state a name=")
    return id


def grouped_stage(
    stream: AnyStream,
    by: Sequence[str],
    id: str,
    settings: TotalsSettings,
    where: str,
    *,
    combined: tuple[Operator, Schema] | None = None,
) -> StageRows:
    """The rows of a stream in a new stage, each in the task of its group; `combined`: what combines
    them before they travel, and the schema of its rows. Raises TopologyError."""
    parallelism = settings.get("parallelism", 1)
    stream.topology.check_new(id, parallelism, where)
    rows = stream if combined is None else stream.then("combine", *combined)
    grouped = rows.fields(*by) if by else rows.global_()
    return stream.topology.begin_stage(
        id, [grouped], parallelism, settings.get("resources", NOTHING)
    )


def location(stream: object, by: Sequence[str], word: str) -> str:
    """The place of a declaration, for errors."""
    return f"{stream}, " + (f"group_by({', '.join(by)}), " if by else "") + word
