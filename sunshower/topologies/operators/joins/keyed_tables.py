"""Tables: the latest record of each key of a stream, with which other streams are joined.

changes ──by key, or all to each task──▶ the table's bolt, with a keyed state
a stream ──by key, or anywhere──▶ the same bolt ──▶ its records, joined with what is there
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Never

from sunshower.arguments import FLAG, check_names
from sunshower.errors import TopologyError
from sunshower.records import Schema, key_of
from sunshower.topologies.graph import Component, Level, Subscription, upstream
from sunshower.topologies.logs import LogSpout
from sunshower.topologies.operators.aggregators import described
from sunshower.topologies.operators.joins.stream_join import INPUT, JoinInput, key_names
from sunshower.topologies.operators.keyed.key_states import KeyState
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.record_operators import PAIRS
from sunshower.topologies.operators.schemas import joined_schema, rest_of
from sunshower.topologies.operators.stages import (
    AnyStream,
    RecordStage,
    StageRows,
    TotalsSettings,
    begin_stage,
)
from sunshower.topologies.operators.states import Spread
from sunshower.topologies.operators.steps import TakeBranch
from sunshower.topologies.operators.updates import Lineage
from sunshower.topologies.operators.windows.event_times import OrderReader
from sunshower.topologies.outputs import Columns
from sunshower.topologies.retry import DEAD_LETTERS

# ---- keyed tables --------------------------------------------------------------------------------


class TableSettings(TotalsSettings, total=False):
    """The settings of `table`.

    - `field`: the time of a change, or another number that grows, as a message's offset: one that
      is lower than that of the record in the table changes nothing
    - `broadcast`: each task has the whole table, so the streams are not distributed by key
    - `wait`: whether the streams that are joined with it begin when it has all that its sources had
      at first, and wait until it is filled again after the death of its process; True
    - `state`: where the table is; None: in the memory of the task, which is filled again from its
      sources when its process has died
    - `parallelism`: the number of tasks, 1; another one takes a stored state over
    - `name`: of the bolt and of the state, by which a later run finds it; "table"
    - `resources`: what each task requests of its node
    """

    field: str | None
    broadcast: bool
    wait: bool


class TableRows:
    """What a table makes of a row and the state of its key: the function of a KeyedProcess. Rows of
    input 0 are changes; it makes (n, joined record) of those of input n, which is the n-th join.

    `has_updates`: changes are updates of running totals. The state of a key is then a list of
    [origin, number, record, or None if it was removed], and the record with the highest number is
    the one in the table. A join in `updates` makes an update of the joined records of an update.
    """

    has_updates = False

    def __init__(self, schema: Schema, by: Sequence[str], field: str | None) -> None:
        rest = rest_of(schema, by)
        self.unmatched = 0  # rows without a partner in the table
        self.schema, self.width = schema, len(by)
        self.joins: list[tuple[Schema, bool]] = []  # its records, and whether all rows make one
        self.updates: set[int] = set()
        self._order = [(*by, *rest).index(name) for name in schema.fields]
        self._values = [schema.key([name]) for name in rest]
        self._content = [schema.key([name]) for name in rest if name != field]
        self.reader = _reader(schema, field)

    @property
    def described_values(self) -> str:
        """What is stored, as a text that the store has."""
        rows = f" rows {described(self.schema.fields)}" if self.schema.type is tuple else ""
        return f"table{' of totals' if self.has_updates else ''}{rows}"

    def __call__(self, row: Any, state: KeyState[Any]) -> Iterator[tuple[int, Any]]:
        key, (number, time, values) = row[: self.width], row[self.width :]
        if not number and self.has_updates:
            self._update(key, values, state)
            return
        now = self.current(state.value)
        if not number:
            change = self._change(key, values)
            if self.reader is None:
                state.value = None if self._is_removed(change) else change
            elif now is None or not self.reader.is_before(time, self.reader.time(now)):
                state.value = change  # a removed key keeps its time
        elif number in self.updates:
            origin, count, rows = values
            joined = [match for entry in rows for match in self._joined(number, key, entry, now)]
            yield number, (origin, count, joined)
        else:
            yield from ((number, match) for match in self._joined(number, key, values, now))

    def current(self, state: Any) -> Any:
        """The record in the table, from the state of its key; None: there is none."""
        if not self.has_updates or not isinstance(state, list):
            return state
        changes = [(number, change) for _, number, change in state if change is not None]
        return max(changes, key=itemgetter(0))[1] if changes else None

    def _update(self, key: Any, update: Any, state: KeyState[Any]) -> None:
        origin, number, rows = update
        origin, known = key_of(origin), state.value
        if not isinstance(known, list):  # None, or the record of an earlier version
            known = [] if known is None else [[None, -1, known]]
        last = next((entry[1] for entry in known if key_of(entry[0]) == origin), number)
        if last > number:
            return
        change = self._change(key, rows[0]) if rows else None
        if change is not None and self._is_removed(change):
            change = None
        others = [pair for pair in known if pair[0] is not None and key_of(pair[0]) != origin]
        state.value = [*others, [origin, number, change]]

    def _change(self, key: Any, values: Any) -> Any:
        return self.schema.build([[(*key, *values)[place] for place in self._order]])[0]

    def _joined(self, number: int, key: Any, values: Any, now: Any) -> list[Any]:
        """The record of a join, if there is one."""
        out, keeps = self.joins[number - 1]
        if now is not None and not self._is_removed(now):
            return out.make([(*key, *values, *(get(now) for get in self._values))])
        self.unmatched += 1
        return out.make([(*key, *values, *(None for _ in self._values))]) if keeps else []

    def figures(self) -> dict[str, float]:
        return {"unmatched": float(self.unmatched)} if self.joins else {}

    def _is_removed(self, change: Any) -> bool:
        return all(get(change) is None for get in self._content)


class TableOfTotals(KeyedProcess):
    """The calls of TableRows for changes that are updates. Queries see the records."""

    def result(self) -> Any:
        values = super().result()
        return None if values is None else {key: self._seen(value) for key, value in values.items()}

    def stored(self, keys: Sequence[Any]) -> list[Any]:
        return list(map(self._seen, super().stored(keys)))

    def stored_items(self) -> Iterator[tuple[Any, Any]]:
        pairs = ((key, self._seen(value)) for key, value in super().stored_items())
        return (pair for pair in pairs if pair[1] is not None)

    def _seen(self, state: Any) -> Any:
        return self.function.current(state)


class AnyTable:
    """A table of ordinary streams or of batches: its declaration, and its operator, which makes (n,
    joined record) of the rows of its n-th join."""

    def __init__(
        self,
        changes: Any,
        by: Sequence[str],
        store: KeyedStore,
        settings: Mapping[str, Any],
        *,
        has_updates: bool = False,
    ) -> None:
        """`has_updates`: as that of TableRows."""
        self.changes, self.by, self.settings = changes, tuple(by), settings
        store.slot.by = self.by
        self.schema = schema = changes.schema
        self.name, self.field = store.name, settings.get("field")
        self._broadcast = settings.get("broadcast", False)
        function = TableRows(schema, by, self.field)
        function.has_updates = has_updates
        kind = TableOfTotals if has_updates else KeyedProcess
        key = key_names(by)
        self._operator = kind(function, key, Schema((*key, *INPUT)), PAIRS, store)
        self._own: Any = self._operator.function  # a copy

    if not TYPE_CHECKING:  # hidden from mypy

        def __getattr__(self, name: str) -> Never:
            """Raise TopologyError for an operator of a stream: it says where to call it."""
            stream = self.__dict__.get("changes")
            if name.startswith("_") or not hasattr(type(stream), name):
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            raise TopologyError(
                f"{stream._where(name)}: .{name}(…) is called on a stream, and this is a table of "
                "its latest records. Call it before group_by(…).table(…), or on the records of a "
                f"stream that is joined with the table: other.join(table).{name}(…)"
            )

    def divided_changes(self) -> JoinInput:
        """What makes rows for the table of changes."""
        return JoinInput(self.schema, self.by, 0, _reader(self.schema, self.field))

    def add_join(
        self,
        schema: Schema,
        on: str | Sequence[str] | None,
        fields: Columns | None,
        settings: Mapping[str, Any],
        where: str,
    ) -> tuple[int, tuple[str, ...], Schema]:
        """The number of a join of records of `schema`, the fields of their key, and the joined
        records. Raises TopologyError."""
        if wrong := settings.keys() - {"how"}:
            raise TopologyError(
                f"{where}: {min(wrong)!r} is for the join of two streams, or as_of= a time; with a "
                "table: on, how, fields"
            )
        how = settings.get("how", "inner")
        left = (schema, self.by if on is None else on)
        both: Any = {"how": how, "kinds": ("inner", "left"), "fields": fields, "where": where}
        ours, _, out = joined_schema(left, (self.schema, self.by), **both)
        self._own.joins.append((out, how == "left"))
        return len(self._own.joins), ours, out


class KeyedTable(AnyTable):
    """The latest record of each key of a stream. `stream.join(table)` joins records with it."""

    def __init__(
        self,
        changes: AnyStream,
        by: Sequence[str],
        rows: StageRows[RecordStage],
        store: KeyedStore,
        settings: TableSettings,
        *,
        has_updates: bool = False,
    ) -> None:
        """`rows`: the input of its stage. `has_updates`: as that of TableRows."""
        super().__init__(changes, by, store, settings, has_updates=has_updates)
        self._pairs = rows.then(self._operator, PAIRS)
        rows.stage.silent_inputs = 1
        rows.stage.is_awaited = settings.get("wait", True)
        rows.stage.is_in_memory = not store.is_stored

    def check_stream(self, stream: AnyStream, where: str) -> None:
        """Raise TopologyError for a stream of another topology."""
        if stream.topology is not self.changes.topology:
            raise TopologyError(
                f"{where}: the table is one of topology {self.changes.topology.id!r}; join streams "
                "and tables of one topology"
            )

    def join(
        self,
        stream: AnyStream,
        on: str | Sequence[str] | None,
        fields: Columns | None,
        settings: Mapping[str, Any],
        where: str,
    ) -> StageRows[RecordStage]:
        """The records of a stream, joined with the table. Raises TopologyError."""
        number, ours, out = self.add_join(stream.schema, on, fields, settings, where)
        bolt = self._pairs.stage.id
        divide, key = JoinInput(stream.schema, ours, number, None), key_names(ours)
        rows = stream.then(f"{bolt}-input", divide, Schema((*key, *INPUT)))
        grouped = rows.local_or_shuffle() if self._broadcast else rows.fields(*key)
        stream.topology.add_input(bolt, grouped)
        joined = self._pairs.then(TakeBranch(number), out)
        if (lineage := stream.lineage) is not None:
            joined.lineage = _joined_lineage(lineage, stream.schema, ours, out)
            places = lineage.keys_places(ours)

            def read_updates() -> None:
                assert places is not None, "its lineage is blocked"
                stream.need_updates()
                divide.read_updates(lineage.width, places)
                self._own.updates.add(number)

            joined.on_updates = read_updates
        return joined


def _joined_lineage(lineage: Lineage, schema: Schema, on: Sequence[str], out: Schema) -> Lineage:
    """The lineage of records of `schema` that are joined with a table to records of `out`."""
    if lineage.keys_places(on) is None:
        blocked = f"a join with a table by {', '.join(on)}, which may change in a group,"
        return replace(lineage, blocked=lineage.blocked or blocked)
    names = zip(out.fields, (*on, *rest_of(schema, on)), strict=False)
    places = {new: lineage.places[name] for new, name in names if name in lineage.places}
    return replace(lineage, places=places)


def _check_table(lineage: Lineage, by: Sequence[str], field: str | None, where: str) -> list[int]:
    """The places of the key of a table in the groups of running totals. Raises TopologyError if a
    group may have other keys later."""
    places = lineage.keys_places(by)
    if places is None or field is not None:
        problem = "field= is given" if field is not None else "its key is not made of their fields"
        raise TopologyError(
            f"{where}: its records are running totals, or follow from them: each replaces the "
            f"earlier one of its group, also if that had another key, and {problem}. Leave out "
            "field=; group by fields of the totals' own groups, which filter, project and joins "
            "pass on, and call .map behind the join with the table"
        )
    return places


def keyed_table(
    stream: AnyStream, by: Sequence[str], settings: TableSettings, where: str
) -> KeyedTable:
    """Declare a table of the latest record of each key. Raises TopologyError."""
    check_names(settings, TableSettings.__annotations__, where, TopologyError)
    schema, field = stream.schema, settings.get("field")
    store = table_store(schema, by, settings, where)
    name, broadcast = store.name, settings.get("broadcast", False)
    stream.topology.check_new(name, settings.get("parallelism", 1), where)
    divide, key = JoinInput(schema, by, 0, _reader(schema, field)), key_names(by)
    if (lineage := stream.lineage) is not None:
        divide.read_updates(lineage.width, _check_table(lineage, by, field, where))
        stream.need_updates()
    changes = stream.then(f"{name}-changes", divide, Schema((*key, *INPUT)))
    grouped = changes.all() if broadcast else changes.fields(*key)
    rows = begin_stage(stream.topology, name, [grouped], settings)
    return KeyedTable(stream, by, rows, store, settings, has_updates=lineage is not None)


def table_store(
    schema: Schema, by: Sequence[str], settings: Mapping[str, Any], where: str
) -> KeyedStore:
    """The store of a table. Raises TopologyError."""
    field, broadcast = settings.get("field"), settings.get("broadcast", False)
    for flag, default in (("broadcast", False), ("wait", True)):
        FLAG.check(f"{where}: {flag}", settings.get(flag, default), TopologyError)
    if field is not None:
        schema.check_field(field, where)
    if not {*schema.fields} - {*by, field}:
        raise TopologyError(
            f"{where}: {schema.name} has no field beside the key; a record whose other fields are "
            "all None removes its key"
        )
    name = settings.get("name")
    spread = Spread.EVERYWHERE if broadcast else Spread.BY_KEY
    classes = schema.classes
    state = settings.get("state")
    return KeyedStore(state, "table" if name is None else name, where, classes, spread=spread)


def _reader(schema: Schema, field: str | None) -> OrderReader | None:
    """Reads what orders the changes of a key; None: they are in the order of their arrival."""
    if field is None:
        return None
    return OrderReader(f"field {field!r} of a table", schema.key([field]), None)


# ---- spouts that wait until the tables are filled, and tables that are filled again -------------


def with_waits(components: Mapping[str, Component], topology: str) -> dict[str, Component]:
    """The components, in which spouts whose records are joined with a table wait for the spouts
    that fill it. A spout of both sides does not wait. Tables in memory name the spouts from which
    they are filled again.

    Warns of a table's source that cannot be waited for. Raises TopologyError for spouts that would
    wait for each other, and for a table in memory that cannot be filled again.
    """
    waits: dict[str, dict[str, str]] = {}  # spout → spout that it waits for → the table
    refills: dict[str, tuple[str, ...]] = {}  # table → the spouts from which it is filled again
    for id, component in components.items():
        stage = component.implementation
        if not isinstance(stage, RecordStage) or not stage.is_awaited:
            continue
        changes, joined = component.inputs[: stage.silent_inputs], component.inputs[1:]
        sources, ends_windows = _spouts_of(components, changes, id)
        readers = _spouts_of(components, joined, id, leaving=True)[0]
        awaited = {spout for spout in sources if _has_first_end(components[spout])}
        if stage.is_in_memory and joined:
            refills[id] = _refilled_from(components, id, topology)
        if readers and (ends_windows or sources - awaited):
            _warn(topology, id, sorted(sources - awaited), ends_windows)
        for reader in () if ends_windows else readers - sources:
            waits.setdefault(reader, {}).update(dict.fromkeys(sorted(awaited), id))
    _check_no_circle(waits, topology)
    changed = {id: replace(components[id], awaits=tuple(waits[id])) for id in waits}
    changed |= {id: replace(components[id], refills=refills[id]) for id in refills}
    return {**components, **changed}


def _refilled_from(
    components: Mapping[str, Component], table: str, topology: str
) -> tuple[str, ...]:
    """The spouts from which a table in memory is filled again. Raises TopologyError if that is not
    possible."""
    stage = components[table].implementation
    ids = upstream(components, components[table].inputs[: stage.silent_inputs])
    problem = next(filter(None, (_why_not_again(components[id], table) for id in ids)), None)
    if any(isinstance(operator, TableOfTotals) for operator in stage.input.operators()):
        problem = "its changes are running totals"
    if problem is not None:
        raise TopologyError(
            f"topology {topology!r}, table {table!r}: it is in memory, and could not be filled "
            f"again if its process died, because {problem}. Give it a state, such as "
            f'table(state=SqliteState("{table}.db")), or table(wait=False) if records that are '
            "joined with it may find nothing"
        )
    return tuple(id for id in ids if components[id].level.is_spout)


def _why_not_again(component: Component, table: str) -> str | None:
    """Why what a component makes for a table cannot be made again; None: it can."""
    id, code = component.id, component.implementation
    if component.level.is_spout:
        can = _has_first_end(component)
        if can and component.level is Level.LOG:
            is_class = isinstance(code, type)
            can = code.from_start is not LogSpout.from_start if is_class else code.from_start()
        return None if can else f"spout {id!r} cannot be read again from its start"
    if id == table:
        return "its changes follow from records that were joined with it"
    if any(read.stream == DEAD_LETTERS for read in component.inputs):
        return f"its changes come from dead letters, which {id!r} reads"
    stores, is_delayed = [component.store], False
    if isinstance(code, RecordStage):
        is_delayed = code.window is not None
        operators = code.input.operators()
        stores = [
            getattr(operator, "slot", None) or getattr(operator, "store", None)
            for operator in operators
        ]
    if is_delayed:
        return f"its changes pass the window, join of streams or timer {id!r}"
    stored = (
        getattr(operator, "factory", None) or getattr(operator, "is_stored", False)
        for operator in stores
    )
    return f"its changes pass {id!r}, whose state is stored" if any(stored) else None


def _spouts_of(
    components: Mapping[str, Component],
    inputs: Sequence[Subscription],
    table: str,
    *,
    leaving: bool = False,
) -> tuple[set[str], bool]:
    """The spouts whose records reach these inputs of a table, and whether they pass a stage that
    keeps them for a time: a window, a join of streams, a process with timers. `leaving`:
    not those that only change another table, which their records do not leave. Dead letters are
    left out: they come whenever a record fails."""
    spouts, seen, waiting, is_delayed = set[str](), {table}, [*inputs], False
    while waiting:
        read = waiting.pop()
        source = components[read.source]
        if source.level.is_spout:
            spouts |= {source.id} if read.stream != DEAD_LETTERS else set()
        elif source.id not in seen:
            seen.add(source.id)
            stage = source.implementation
            is_stage = isinstance(stage, RecordStage)
            skipped = stage.silent_inputs if is_stage and leaving else 0
            waiting += source.inputs[skipped:]
            is_delayed |= is_stage and stage.window is not None
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
