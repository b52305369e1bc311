"""The stage of the totals of an ordinary stream, with the parts that it shares with windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict

from sunshower.config import NOTHING, Resources
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.operators.aggregators import (
    AnyAggregator,
    CombinerAggregator,
    ReducerAggregator,
)
from sunshower.topologies.operators.port import Operator
from sunshower.topologies.operators.record_operators import PAIRS
from sunshower.topologies.operators.schemas import bound_aggregators
from sunshower.topologies.operators.stages import Declarations, StageRows
from sunshower.topologies.operators.states import StateFactory
from sunshower.topologies.operators.steps import TakeBranch
from sunshower.topologies.operators.totals import TotalsSlot, single, totals_operators
from sunshower.topologies.operators.updates import (
    Lineage,
    UpdatedTotals,
    check_replaces,
    moved_origins,
    totals_lineage,
    updated_operators,
)
from sunshower.topologies.outputs import Columns


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
    slot = TotalsSlot(settings.get("state"), id, where)
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
    slot = TotalsSlot(settings.get("state"), id, where, moved_origins)
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
