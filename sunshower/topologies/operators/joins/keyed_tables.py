"""Tables: the latest record of each key of a stream, with which other streams are joined.

changes ──by key, or all to each task──▶ the table's bolt, with a keyed state
a stream ──by key, or anywhere──▶ the same bolt ──▶ its records, joined with what is there
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sunshower.arguments import FLAG, check_names
from sunshower.config import NOTHING
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.graph import Component, Level, Subscription
from sunshower.topologies.logs import LogSpout
from sunshower.topologies.operators.joins.joined_streams import join_input
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess, KeyState
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.record_operators import PAIRS
from sunshower.topologies.operators.schemas import joined_schema, rest_of
from sunshower.topologies.operators.stages import Declarations, StageDraft, StageRows
from sunshower.topologies.operators.states import Spread
from sunshower.topologies.operators.steps import TakeBranch
from sunshower.topologies.operators.totals_stage import AnyStream, TotalsSettings
from sunshower.topologies.operators.windows.event_times import OrderReader
from sunshower.topologies.outputs import Columns
from sunshower.topologies.retry import DEAD_LETTERS


class TableSettings(TotalsSettings, total=False):
    """The settings of `table`.

    - `field`: the time of a change, or another number that grows, as a message's offset: one that
      is lower than that of the record in the table changes nothing
    - `broadcast`: each task has the whole table, so the streams are not distributed by key
    - `wait`: whether the streams that are joined with it begin when it has all that its sources had
      at first; True
    - `state`: where the table is; None: in the memory of the task, lost with its process
    - `parallelism`: the number of tasks, 1; another one takes a stored state over
    - `name`: of the bolt and of the state, by which a later run finds it; "table"
    - `resources`: what each task requests of its node
    """

    field: str | None
    broadcast: bool
    wait: bool


class TableRows:
    """What a table makes of a row and the state of its key: the function of a KeyedProcess. Rows of
    input 0 are changes; it makes (n, joined record) of those of input n, which is the n-th join."""

    def __init__(self, schema: Schema, by: Sequence[str], field: str | None) -> None:
        rest = rest_of(schema, by)
        self.unmatched = 0  # rows without a partner in the table
        self.schema, self.width = schema, len(by)
        self.joins: list[tuple[Schema, bool]] = []  # its records, and whether all rows make one
        self._order = [(*by, *rest).index(name) for name in schema.fields]
        self._values = [schema.key([name]) for name in rest]
        self._content = [schema.key([name]) for name in rest if name != field]
        self.reader = _reader(schema, field)

    def __call__(self, row: Any, state: KeyState[Any]) -> Iterator[tuple[int, Any]]:
        key, (number, time, values) = row[: self.width], row[self.width :]
        now = state.value
        if not number:
            (change,) = self.schema.build([[(*key, *values)[place] for place in self._order]])
            if self.reader is None:
                state.value = None if self._is_removed(change) else change
            elif now is None or not self.reader.is_before(time, self.reader.time(now)):
                state.value = change  # a removed key keeps its time
            return
        out, keeps = self.joins[number - 1]
        if now is not None and not self._is_removed(now):
            yield number, out.make([(*key, *values, *(get(now) for get in self._values))])[0]
            return
        self.unmatched += 1
        if keeps:
            yield number, out.make([(*key, *values, *(None for _ in self._values))])[0]

    def figures(self) -> dict[str, float]:
        """How many rows found no partner."""
        return {"unmatched": float(self.unmatched)} if self.joins else {}

    def _is_removed(self, change: Any) -> bool:
        return all(get(change) is None for get in self._content)


class KeyedTable:
    """The latest record of each key of a stream. `stream.join(table)` joins records with it."""

    def __init__(
        self,
        topology: Declarations,
        schema: Schema,
        by: Sequence[str],
        rows: StageRows,
        store: KeyedStore,
        settings: TableSettings,
    ) -> None:
        """`rows`: the input of its stage."""
        self._topology, self.schema, self.by = topology, schema, tuple(by)
        self._broadcast = settings.get("broadcast", False)
        function = TableRows(schema, by, settings.get("field"))
        key = rows.schema.fields[: len(by)]
        operator = KeyedProcess(function, key, rows.schema, PAIRS, store)
        self._own: Any = operator.function  # a copy
        self._pairs = rows.then(operator, PAIRS)
        rows.stage.silent_inputs = 1
        rows.stage.is_awaited = settings.get("wait", True)

    def join(
        self,
        stream: AnyStream,
        on: str | Sequence[str] | None,
        fields: Columns | None,
        settings: Mapping[str, Any],
        where: str,
    ) -> StageRows:
        """The records of a stream, joined with the table. Raises TopologyError."""
        if stream.topology is not self._topology:
            raise TopologyError(
                f"{where}: the table is one of topology {self._topology.id!r}; join streams and "
                "tables of one topology"
            )
        if wrong := settings.keys() - {"how"}:
            raise TopologyError(
                f"{where}: {min(wrong)!r} is for the join of two streams; with a table: on, how, "
                "fields"
            )
        how = settings.get("how", "inner")
        left = (stream.schema, self.by if on is None else on)
        ours, _, out = joined_schema(
            left,
            (self.schema, self.by),
            how=how,
            kinds=("inner", "left"),
            fields=fields,
            where=where,
        )
        self._own.joins.append((out, how == "left"))
        number, bolt = len(self._own.joins), self._pairs.stage.id
        rows, key = join_input(stream, ours, number, None, f"{bolt}-input")
        grouped = rows.local_or_shuffle() if self._broadcast else rows.fields(*key)
        stream.topology.add_input(bolt, grouped)
        return self._pairs.then(TakeBranch(number), out)


def keyed_table(
    stream: AnyStream, by: Sequence[str], settings: TableSettings, where: str
) -> KeyedTable:
    """Declare a table of the latest record of each key. Raises TopologyError."""
    check_names(settings, TableSettings.__annotations__, where, TopologyError)
    schema, field = stream.schema, settings.get("field")
    for flag, default in (("broadcast", False), ("wait", True)):
        FLAG.check(f"{where}: {flag}", settings.get(flag, default), TopologyError)
    if field is not None:
        schema.check_field(field, where)
    if not {*schema.fields} - {*by, field}:
        raise TopologyError(
            f"{where}: {schema.name} has no field beside the key; a record whose other fields are "
            "all None removes its key"
        )
    name, parallelism = settings.get("name"), settings.get("parallelism", 1)
    name = "table" if name is None else name
    stream.topology.check_new(name, parallelism, where)
    broadcast = settings.get("broadcast", False)
    spread = Spread.EVERYWHERE if broadcast else Spread.BY_KEY
    store = KeyedStore(settings.get("state"), name, where, schema.classes, spread=spread)
    changes, key = join_input(stream, by, 0, _reader(schema, field), f"{name}-changes")
    grouped = changes.all() if broadcast else changes.fields(*key)
    rows = stream.topology.begin_stage(
        name, [grouped], parallelism, settings.get("resources", NOTHING)
    )
    return KeyedTable(stream.topology, schema, by, rows, store, settings)


def _reader(schema: Schema, field: str | None) -> OrderReader | None:
    """Reads what orders the changes of a key; None: they are in the order of their arrival."""
    if field is None:
        return None
    return OrderReader(f"field {field!r} of a table", schema.key([field]), None)


# ---- spouts that wait until the tables are filled -----------------------------------------------


def with_waits(components: Mapping[str, Component], topology: str) -> dict[str, Component]:
    """The components, in which spouts whose records are joined with a table wait for the spouts
    that fill it. A spout of both sides does not wait.

    Warns of a table's source that cannot be waited for. Raises TopologyError for spouts that would
    wait for each other.
    """
    waits: dict[str, dict[str, str]] = {}  # spout → spout that it waits for → the table
    for id, component in components.items():
        stage = component.implementation
        if not isinstance(stage, StageDraft) or not stage.is_awaited:
            continue
        changes, joined = component.inputs[: stage.silent_inputs], component.inputs[1:]
        sources, ends_windows = _spouts_of(components, changes, id)
        readers = {spout for read in joined for spout in _spouts_of(components, [read], id)[0]}
        awaited = {spout for spout in sources if _has_first_end(components[spout])}
        if readers and (ends_windows or sources - awaited):
            _warn(topology, id, sorted(sources - awaited), ends_windows)
        for reader in () if ends_windows else readers - sources:
            waits.setdefault(reader, {}).update(dict.fromkeys(sorted(awaited), id))
    _check_no_circle(waits, topology)
    changed = {id: replace(components[id], awaits=tuple(waits[id])) for id in waits}
    return {**components, **changed}


def _spouts_of(
    components: Mapping[str, Component], inputs: Sequence[Subscription], table: str
) -> tuple[set[str], bool]:
    """The spouts whose records reach these inputs of a table, and whether they pass a stage that
    keeps them for a time: a window, a join of streams, a process with timers. Dead letters are
    left out: they come whenever a record fails."""
    spouts, seen, waiting, is_delayed = set[str](), {table}, [*inputs], False
    while waiting:
        read = waiting.pop()
        source = components[read.source]
        if source.level.is_spout:
            spouts |= {source.id} if read.stream != DEAD_LETTERS else set()
        elif source.id not in seen:
            seen.add(source.id)
            waiting += source.inputs
            stage = source.implementation
            is_delayed |= isinstance(stage, StageDraft) and stage.window is not None
    return spouts, is_delayed


def _has_first_end(spout: Component) -> bool:
    """Whether a spout can tell that it has read all that its source had at first."""
    if spout.level is not Level.LOG:
        return spout.level.counts_records
    code = spout.implementation
    kind = code if isinstance(code, type) else type(code)
    return getattr(kind, "has_read_first", None) is not LogSpout.has_read_first


def _warn(topology: str, table: str, spouts: Sequence[str], is_delayed: bool) -> None:
    reason = (
        "its changes pass a window, a join of streams or a timer, which send them later"
        if is_delayed
        else f"spout {' and '.join(map(repr, spouts))} cannot tell when it has read all that its "
        "source had at first"
    )
    warnings.warn(
        f"topology {topology!r}, table {table!r}: records that are joined with it do not wait "
        f"until it is filled, because {reason}; those that come first may find nothing in it. "
        "Give table(wait=False) if this is right",
        stacklevel=4,
    )


def _check_no_circle(waits: Mapping[str, Mapping[str, str]], topology: str) -> None:
    """Raise TopologyError if spouts would wait for each other."""
    for first in waits:
        path, waiting = {first: ""}, [first]
        while waiting:
            spout = waiting.pop()
            for awaited, table in waits.get(spout, {}).items():
                line = f"spout {spout!r} for table {table!r}, which {awaited!r} fills"
                line = "; ".join(filter(None, (path[spout], line)))
                if awaited == first:
                    raise TopologyError(
                        f"topology {topology!r}: spouts would wait for each other: {line}. Declare "
                        "one of these tables with table(wait=False)"
                    )
                if awaited not in path:
                    path[awaited] = line
                    waiting.append(awaited)
