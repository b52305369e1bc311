"""States of a program from outside: which there are, what they have, and imports into them.

    states_of_program(graph)             those that the program declares, and others in its stores
    state.items() · state.get(key)       the values, as functions of the program see them
    StateImport(state, …).add(key, value)  … .write()

An import has one order, and each step is a compare-and-set of the mark of a part:

    fence     each part gets a mark that names the import: nobody else reads or writes it now
    migrate   values of an earlier version become those of this one
    import    the keys of the file get their values
    ready     each part gets its usual mark, when all parts have all values; the first one last,
              whose mark is read by all who open the state

A process that dies between leaves marks that only an import takes away, by doing all of it again:
the same one, or another one `instead` of it, beside whose keys those stay that are written. The
mark names the process too, so one that imports at the same time notices that another one has taken
over. Values expire when the program runs: the time of an imported value is that of its import.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from sunshower import versions
from sunshower.clock import SystemClock
from sunshower.errors import ConfigError, StateMismatch, WrongVersion, user_errors
from sunshower.json_values import key_of as key_of_text
from sunshower.json_values import text_of, text_of_key, values_of
from sunshower.record_types import is_record
from sunshower.records import key_of
from sunshower.runtime.transport.routing import task_index
from sunshower.state.backing import Mark
from sunshower.topologies.components import Context
from sunshower.topologies.graph import Component, Graph
from sunshower.topologies.operators.aggregators import CombinerAggregator
from sunshower.topologies.operators.keyed.key_states import (
    KeyList,
    KeyMap,
    KeyRows,
    content_of,
)
from sunshower.topologies.operators.keyed.keyed_process import KeyedProcess, is_distinct
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore, as_read
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.state_slot import StateSlot, held_states, unstamped
from sunshower.topologies.operators.states import (
    ABOUT,
    ENTRY,
    ROW,
    Key,
    Moving,
    Place,
    Spread,
    StateKind,
    check_key,
    numbers_of,
)
from sunshower.topologies.operators.totals import (
    CombinedTotals,
    PersistCombined,
    PersistReduced,
    ReducedTotals,
)
from sunshower.topologies.operators.windows.window_kinds import Sessions
from sunshower.trident.stages.batch_windows import KEY as WINDOWS_KEY
from sunshower.trident.stages.batch_windows import CountedWindows, Windows
from sunshower.trident.stages.persisting import BatchSlot, PersistPartition
from sunshower.trident.states.factories import (
    Assignment,
    Changes,
    KeptState,
    PartMark,
    Parts,
    chunks,
    is_ready,
)
from sunshower.trident.states.stored_map import (
    Journal,
    StateOwner,
    StoredMap,
    describe_attempt,
    order_of,
    packed,
    unpacked,
)

_TOTALS = (CombinedTotals, PersistCombined, ReducedTotals, PersistReduced)  # as they are stored


# ---- states of a program -------------------------------------------------------------------------


class Summary(NamedTuple):
    """What `sunshower state list` says of a state."""

    tasks: int  # 0: it has never been written
    keys: int
    version: int | None  # of its values; None: it has no versions
    last_write: str  # empty: there was none
    importing: str  # the file that is being imported; empty: none


@dataclass(frozen=True)
class StoredState:
    """A state in a store, with what the program says of it. Methods that read it raise
    StoreUnreachable, and StateMismatch for what somebody else has written."""

    name: str
    factory: KeptState
    component: str = ""  # empty: no component of the program has it
    tasks: int = 1  # of the component
    operator: Any = None
    slot: StateSlot | None = None
    store: KeyedStore | None = None  # of keyed states

    @property
    def holder(self) -> str:
        """What has it: totals, process, distinct, bolt, window, join, table or updater."""
        if self.operator is None:
            return "bolt" if self.store is not None else "–"
        if self.process is not None and is_distinct(self.process.function):
            return "distinct"
        if isinstance(self.operator, KeyedProcess):
            return "process"
        if isinstance(self.operator, _TOTALS):
            return "totals"
        if isinstance(self.operator, PersistPartition):
            return "updater"
        if isinstance(self.operator, Windows | CountedWindows):
            return "window"
        return getattr(self.operator, "word", type(self.operator).__name__.lower())

    @property
    def why_read_only(self) -> str:
        """Why no file can be imported into it; empty if one can."""
        if not self.component:
            return "no component of the program has it, so nobody knows what its values are"
        is_process = self.store is not None and (
            self.operator is None or isinstance(self.operator, KeyedProcess)
        )
        if is_process or type(self.operator) in _TOTALS:
            return ""
        if isinstance(self.operator, PersistPartition):
            one_task = "its keys are chosen by a function, so nobody knows which task has which"
            return "" if self.tasks == 1 else one_task
        return f"it is that of a {self.holder}, whose values belong together in its own way"

    def items(self) -> Iterator[tuple[Key, Any]]:
        """All keys of records and their values, over all tasks, in no order. Each part is read as
        of its last commit. Values that are too old are left out."""
        if numbers := self._numbers():
            with self._readable(), Parts(self.factory.open, self.name, self.factory.where) as parts:
                read = None if self.store is None else self._read
                for number in numbers:
                    self._learn(_PartReader(parts, number, parts.mark(number)))
                for key, value in parts.items(numbers, read, written_after=self._expired_at()):
                    if not isinstance(self.operator, Windows | CountedWindows):
                        yield key, value
                    elif type(key) is tuple and self._is_content(key):
                        yield key[1:], value

    def _is_content(self, key: tuple[Any, ...]) -> bool:
        """Whether a key of windows of batches has the content of a pane, or the sessions of a
        group; else it says how far a task is, or what it has emitted."""
        has_sessions = isinstance(getattr(self.operator, "window", None), Sessions)
        return key[0] == WINDOWS_KEY and len(key) > (1 if has_sessions else 2)

    def get(self, key: Key) -> Any:
        """The value of a key; None if there is none."""
        if not (numbers := self._numbers()):
            return None
        if isinstance(self.operator, Windows | CountedWindows):
            key = (WINDOWS_KEY, *key) if type(key) is tuple else (WINDOWS_KEY, key)
        with self._readable(), Parts(self.factory.open, self.name, self.factory.where) as parts:
            present: list[int] | None = None
            while present != (present := parts.parts_with(key)):  # else it has moved meanwhile
                for number in present or numbers:
                    if (value := self._value(parts, number, key)) is not None:
                        return value
        return None

    def _value(self, parts: Parts, number: int, key: Key) -> Any:
        """The value of a key in a part; None if there is none."""
        part = _PartReader(parts, number, parts.mark(number))
        self._learn(part)
        (stored,) = part.values([key])
        if stored is None:
            return None
        head = unstamped(stored)[1]
        if numbers_of(head):
            return self._whole(part, key, head)
        is_keyed = self.store is not None or part.is_keyed or part.values([ABOUT]) != [None]
        return self._read(stored) if is_keyed else stored

    def _learn(self, part: _PartReader) -> None:
        """Note the former names of fields that a part knows."""
        if self.slot is not None and self.slot.version is not None:
            match part.values([ABOUT]):
                case [{"version": _, "records": _} as about]:
                    self.slot.version.learn(about)

    def _whole(self, part: _PartReader, key: Key, head: Any) -> Any:
        """The list or the dictionary of a key."""
        rows: dict[Key, Any] = {}

        def fetch(keys: Sequence[Key]) -> None:
            rows.update(zip(keys, map(self._read, part.values(keys)), strict=True))

        return content_of(key, head, fetch, lambda row: rows[row])

    @property
    def record(self) -> type[Any] | None:
        """The record type that all values have, as declared; None: they may be something else."""
        kind = None if self.store is None else self.store.value_type
        return kind if isinstance(kind, type) and is_record(kind) else None

    @property
    def process(self) -> KeyedProcess | None:
        """The calls of a function with a keyed state."""
        return self.operator if isinstance(self.operator, KeyedProcess) else None

    def text(self, value: Any) -> str:
        """A value as JSON, which an import reads. Raises Unserialisable."""
        return text_of(value if self.store is None else self.store.convert(value))

    def summary(self) -> Summary:
        """What there is. It reads all keys."""
        numbers = self._numbers()
        if not numbers:
            return Summary(0, 0, None, "", "")
        with Parts(self.factory.open, self.name, self.factory.where, importing=None) as parts:
            marks = [mark for number in numbers if (mark := parts.mark(number)) is not None]
            chain = parts.chain()
            version = None
            for number, mark in zip(numbers, map(parts.mark, numbers), strict=True):
                match _PartReader(parts, number, mark).values([ABOUT]):
                    case [{"version": int() as part_version}]:
                        version = max(version or 0, part_version)
        importing = next((mark.word["importing"][0] for mark in marks if mark.importing), "")
        last = max(marks, key=lambda mark: order_of(mark.attempt))
        tasks = chain[-1].tasks if chain else int(last.word["parallelism"])
        keys = 0 if importing else sum(1 for _ in self.items())
        return Summary(tasks, keys, version, _told(last), importing)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raise StateMismatch for what cannot be read."""
        try:
            yield
        except (ValueError, TypeError, KeyError) as error:
            raise StateMismatch(
                f"state {self.name!r} in {self.factory.where}: a value cannot be read: {error}. "
                "Somebody else has written there"
            ) from error

    def _numbers(self) -> list[int]:
        return [home.task for home in self.factory.homes() if home.state == self.name]

    def _read(self, stored: Any) -> Any:
        """A stored value of a keyed state, as its functions see it."""
        if self.store is None:
            return as_read(stored)
        return self.store.read(stored)

    def _expired_at(self) -> float | None:
        """Values that were written by then are too old; None: they do not expire by the clock."""
        if self.store is None or self.store.ttl_s is None or isinstance(self.slot, BatchSlot):
            return None
        return SystemClock().wall() - self.store.ttl_s


def states_of_program(graph: Graph) -> list[StoredState]:
    """The stored states of a program in the order of its components, and then other states in its
    stores. Raises StoreUnreachable."""
    states = [state for component in graph.components.values() for state in _stored(component)]
    stores = {state.factory.where: state.factory for state in states}
    known = {(state.factory.where, state.name) for state in states}
    for where, factory in stores.items():
        names = dict.fromkeys(home.state for home in factory.homes())
        states += [StoredState(name, factory) for name in names if (where, name) not in known]
    return states


def _stored(component: Component) -> Iterator[StoredState]:
    for operator, slot, store in held_states(component):
        if isinstance(factory := slot.factory, KeptState):
            name, tasks = factory.name or slot.name, component.parallelism
            yield StoredState(name, factory, component.id, tasks, operator, slot, store)


class _PartReader:
    """Reads values of a part."""

    def __init__(self, parts: Parts, number: int, mark: PartMark | None) -> None:
        self._backing = parts.backing(number)
        self._kind = StateKind(mark.word["kind"]) if mark else StateKind.OPAQUE
        self.is_keyed = mark is not None and mark.is_keyed

    def values(self, keys: Sequence[Key]) -> list[Any]:
        """The stored values of keys; None where there is none."""
        texts = self._backing.get([*map(text_of_key, keys)])
        return [
            None if text is None else unpacked(self._kind, values_of([text]))[0].value
            for text in texts
        ]


def _told(mark: PartMark) -> str:
    """What has written last: a batch, or a write of an ordinary stream, which have only numbers."""
    if "imported" in mark.word:
        return "import"
    return f"{'batch' if mark.word.get('batches') else 'write'} {mark.attempt.txid}"


# ---- import --------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A part into which is imported, as it was found."""

    number: int
    seen: str | None  # the word of its mark
    ready: Mark  # when all is imported
    changes: list[Changes]  # for one write each
    undone: Mark | None  # as it was; None: nothing was written
    step: int  # how far the same import is that was interrupted; 0: at its begin, or another one
    removed: Sequence[str]  # keys of the last write that are null: the import removes them


class StateImport:
    """Values that are to be written to a state, all or nothing. `add` checks and converts them,
    and `write` writes them."""

    def __init__(
        self,
        topology: str,
        state: StoredState,
        file: str,
        checksum: int,
        *,
        process: str = "",
        instead: bool = False,
    ) -> None:
        """`file`, `checksum`: identify the import, which may be repeated after an interruption;
        `process`: who does it. `instead`: also if that of another file was interrupted, of which
        some keys may be written; who repeats this one need not say it again. Raises ConfigError for
        a state that is only read."""
        if why := state.why_read_only:
            raise ConfigError(f"state {state.name!r} can only be read: {why}")
        self._topology, self._state, self._file = topology, state, (file, checksum)
        self._completes = None if instead else self._file  # the imports that it takes over
        self._words: dict[int, str] = {}  # part → the mark that this process has written
        self._process = process
        self._keys: dict[Key, None] = {}
        self._values: dict[Key, Any] = {}  # as they are stored; None: removed
        self._memory: KeyedStore | None = None  # converts values of keyed states
        if (store := state.store) is not None:
            # In batches, a value gets the time of the next batch, as one from before `ttl_s`.
            ttl_s = None if isinstance(state.slot, BatchSlot) else store.ttl_s
            where = f"state {state.name!r}"
            renamed = store.values.renamed if store.values.may_drop else None
            self._memory = KeyedStore(
                None, store.name, where, store.classes, ttl_s=ttl_s, renamed=renamed
            )
            self._memory.open(Context(topology, state.component, 0, 0, 1))

    def read(self, plain: Any) -> Any:
        """The value of what JSON had of it. Raises StateMismatch if a class is not known."""
        return plain if self._memory is None else self._memory.read(plain)

    def add(self, key: Any, value: Any) -> None:
        """Give a key a value; None: remove it. Raises ConfigError for a key that is there already,
        or a value that the state cannot have, BadEmit for a key that cannot be one, and
        Unserialisable."""
        key = key_of(key)
        check_key(key)
        key = key_of_text(text_of_key(key))
        if key in self._keys:
            raise ConfigError(f"the key {key!r} is there twice")
        if value is None:
            self._values[key] = None
        elif self._memory is None:
            self._check_total(value)
            self._values[key] = text_of(value)
        else:
            self._put(self._memory, key, value)
        self._keys[key] = None

    def write(self) -> tuple[int, int]:
        """Write it all; returns how many keys have values now, and how many were removed. Raises
        ConfigError if a program writes the state meanwhile, or has to run first, StateMismatch for
        a state of another program, and StoreUnreachable: then it has to be repeated."""
        state = self._state
        numbers = [home.task for home in state.factory.homes() if home.state == state.name]
        factory, where = state.factory, state.factory.where
        with Parts(factory.open, state.name, where, importing=None) as parts:
            parts_found = self._found(parts, numbers)
            self._fence(parts, parts_found)
            try:
                for part in parts_found:
                    null_keys = [*part.removed]
                    for step, changes in enumerate(part.changes, start=1):
                        null_keys = [key for key in null_keys if key not in changes]
                        mark = self._unready(part, step, null_keys)
                        self._write_part(parts, part.number, changes, mark)
                for part in reversed(parts_found):  # all who open the state read the first one
                    self._write_part(parts, part.number, {}, part.ready)
            except WrongVersion as error:
                raise ConfigError(
                    f"state {state.name!r}: another process has taken over this import, and "
                    "completes it, unless it was interrupted: `sunshower state list` shows that"
                ) from error
        removed = sum(self._values.get(key, 0) is None for key in self._keys)
        return len(self._keys) - removed, removed

    # ---- values ----------------------------------------------------------------------------------

    def _check_total(self, value: Any) -> None:
        combiner = getattr(self._state.operator, "combiner", None)
        if not isinstance(combiner, CombinerAggregator):
            return
        try:
            combiner.combine(combiner.zero(), value)
            combiner.result(value)
        except user_errors() as error:
            kind = type(combiner).__name__.lower()
            raise ConfigError(
                f"{value!r:.100} is not a value of its aggregator ({kind})"
            ) from error

    def _put(self, memory: KeyedStore, key: Key, value: Any) -> None:
        store, kind = self._state.store, getattr(self._state.process, "kind", None)
        assert store is not None
        if kind is KeyList or kind is KeyMap:
            if not isinstance(value, list if kind is KeyList else dict):
                word = "a list" if kind is KeyList else "an object"
                raise ConfigError(f"{value!r:.100} is not {word}, as a {kind.__name__} has it")
            rows = kind(value, rows=KeyRows(memory, key))
            if len(rows):
                rows.keep()
            else:
                self._values[key] = None
            return
        record = self._state.record
        if record is not None and type(value) is not record:
            raise ConfigError(f"{value!r:.100} is not a {record.__name__}, as the state has")
        memory.put(key, value)

    # ---- parts -----------------------------------------------------------------------------------

    def _found(self, parts: Parts, numbers: Sequence[int]) -> list[_Part]:
        """The parts of the tasks that have the state, or that will have it."""
        if chain := parts.chain():
            first, tasks = chain[-1]
            self._check_moved(parts, chain)
        else:
            known = parts.mark(numbers[0]) if numbers else None
            first, tasks = 0, int(known.word["parallelism"]) if known else self._state.tasks
        written, root = self._by_task(tasks), parts.mark(first)
        if root is not None and self._is_same(root) and root.word.get("instead"):
            self._completes = None
        # Values are written when all parts are fenced, so one that is not is ready since.
        has_values = root is not None and self._step_of(root) > 0
        return [
            self._part(parts, number, index, tasks, written[index])
            for index, number in enumerate(range(first, first + tasks))
            if not has_values or ((mark := parts.mark(number)) and mark.importing)
        ]

    def _check_moved(self, parts: Parts, chain: Sequence[Assignment]) -> None:
        """Raise ConfigError if a part has not got all values from the parts that were left. One
        without a mark has none of them yet."""
        last = chain[-1]
        if not all(is_ready(parts.mark(number), len(chain) - 1) for number in last.parts()):
            raise ConfigError(
                f"state {self._state.name!r} is moving to {last.tasks} tasks: start the program, "
                "which completes that, kill it, and import then"
            )

    def _by_task(self, tasks: int) -> list[dict[Key, Any]]:
        """What each task is to have, as it is stored."""
        values = dict(self._values)
        if self._memory is not None:
            values |= {key: text_of(plain) for key, plain in self._memory.changed.items()}
        by_task: list[dict[Key, Any]] = [{} for _ in range(tasks)]
        for key, text in values.items():
            of_row = type(key) is tuple and key[:1] and key[0] in (ROW, ENTRY)
            group = key[1] if of_row else key  # type: ignore[index]
            by_task[task_index(group, tasks) if tasks > 1 else 0][key] = text
        return by_task

    def _part(
        self, parts: Parts, number: int, index: int, tasks: int, written: Mapping[Key, Any]
    ) -> _Part:
        state, slot, mark = self._state, self._state.slot, parts.mark(number)
        assert slot is not None
        place, factory = self._place(slot, index, tasks), state.factory
        owner = StateOwner(place, factory.kind, factory.where, self._completes)
        stored = StoredMap(parts.backing(number), owner)  # its backing is that of `parts`
        last = stored.last_attempt
        if isinstance(slot, BatchSlot):
            self._check_committed(slot, index, last)
        journal = owner.journal(mark.mark) if mark is not None else Journal()
        txid = (last.txid if last else 0) or int(owner.kind is StateKind.OPAQUE)  # has no batch 0
        changes = [*self._changes(stored, owner.kind, txid, written, journal.removed)]
        ready = owner.mark(self._attempt(slot, last), Journal())
        ready = _with(ready, imported=f"{SystemClock().wall():.6f}")
        seen = None if mark is None else mark.mark
        step = 0 if mark is None else self._step_of(mark)
        return _Part(number, seen and seen.word, ready, changes, seen, step, journal.removed)

    def _step_of(self, mark: PartMark) -> int:
        """How far the same import is, if that is under way; 0: it has begun at most."""
        return int(mark.word["step"]) if self._is_same(mark) else 0

    def _is_same(self, mark: PartMark) -> bool:
        """Whether the same file is being imported into a part."""
        return [*mark.word.get("importing", ())] == [*self._file]

    def _place(self, slot: StateSlot, index: int, tasks: int) -> Place:
        if isinstance(slot, BatchSlot):
            batches = slot.counted.incarnation() if slot.counted is not None else ""
            return Place(self._topology, slot.name, index, tasks, batches, values=slot.values)
        moving = Moving(Spread.BY_KEY, lambda _: {})
        return Place(self._topology, slot.name, index, tasks, moving=moving, values=slot.values)

    def _attempt(self, slot: StateSlot, last: Attempt | None) -> Attempt:
        if isinstance(slot, BatchSlot):  # the numbers of batches go on
            return last or Attempt(0, 0, 0)
        return Attempt(last.txid if last else 1, 0, last.epoch + 1 if last else 1)

    def _check_committed(self, slot: BatchSlot, index: int, last: Attempt | None) -> None:
        """Raise StateMismatch for a state that is behind its note, and ConfigError if its last
        batch may be repeated, which would find what is imported."""
        if slot.counted is None or not slot.exactly_once:
            return
        name = self._state.name
        with closing(slot.counted.last_write(name, index)) as noted:
            noted.check(last, f"state {name!r}, task {index}")
        if last is not None and last.txid >= slot.counted.current():
            raise ConfigError(
                f"state {name!r}: {describe_attempt(last)} is written and not committed, so it "
                "will be repeated: start the program, which completes it, kill it, and import then"
            )

    def _changes(
        self,
        stored: StoredMap,
        kind: StateKind,
        txid: int,
        written: Mapping[Key, Any],
        removed: Sequence[str],
    ) -> Iterator[Changes]:
        """What becomes different in a part, write by write: first all values of an earlier version,
        with the version, so that nobody migrates one twice; then what is imported."""
        values: dict[Key, Any] = {}
        slot, store = self._state.slot, self._state.store
        if slot is not None and slot.version is not None:
            (about,) = stored.multi_get([ABOUT])
            migrated = slot.version.migrated(about, stored.items)
            values = {key: None if v is None else text_of(v) for key, v in migrated.items()}
            values[ABOUT] = text_of(slot.version.about(about))
            yield _packed(kind, txid, values)
            values = {}
        if store is not None and store.has_rows:
            for key in (key for key, _ in stored.items()):
                is_row = type(key) is tuple and key[:1] and key[0] in (ROW, ENTRY)
                if is_row and key[1] in written:  # type: ignore[index]
                    values[key] = None
        yield from chunks(dict.fromkeys(removed) | _packed(kind, txid, {**values, **written}))

    # ---- writing ---------------------------------------------------------------------------------

    def _fence(self, parts: Parts, parts_found: Sequence[_Part]) -> None:
        """Keep all others out of all parts, or of none; also another process that imports."""
        done: list[_Part] = []
        try:
            for part in parts_found:
                fence = self._unready(part, 0, part.removed)
                parts.backing(part.number).put({}, fence, part.seen)
                self._words[part.number] = fence.word
                done.append(part)
        except WrongVersion as error:
            for part in reversed(done):
                back = part.undone or part.ready  # one that was never written is empty
                with suppress(WrongVersion):
                    self._write_part(parts, part.number, {}, back)
            if (other := parts.backing(part.number).mark()) and "importing" in other.word:
                raise ConfigError(
                    f"another process imports into state {self._state.name!r}: try again when it "
                    "has ended, and nothing has changed by this one"
                ) from error
            raise ConfigError(
                f"state {self._state.name!r} was written while it was to be imported: a program "
                "runs on it. Kill it, as with `sunshower kill NAME`, and import then; nothing has "
                "changed"
            ) from error

    def _unready(self, part: _Part, write: int, removed: Iterable[str]) -> Mark:
        """The mark of write number `write`; 0: the fence. It differs from that of each other write,
        which would count as repeated. `removed`: keys that still are to be removed."""
        facts = {"importing": self._file, "instead": self._completes is None, "by": self._process}
        step = max(write, part.step)
        ready = Mark(part.ready.word, Journal(removed=(*removed,)).text())
        return _with(ready, version=versions.STATE_MOVED, **facts, step=step, write=write)

    def _write_part(self, parts: Parts, number: int, changes: Changes, mark: Mark) -> None:
        """Write to a part that this process has fenced. Raises WrongVersion if another one has
        taken it over."""
        parts.backing(number).put(changes, mark, self._words[number])
        self._words[number] = mark.word


def _packed(kind: StateKind, txid: int, values: Mapping[Key, Any]) -> Changes:
    """Texts of values as they are stored, those before batch `txid` equal; None: removed."""
    return {
        text_of_key(key): None if text is None else packed(kind, txid, text, text)
        for key, text in values.items()
    }


def _with(mark: Mark, **facts: Any) -> Mark:
    return Mark(json.dumps({**json.loads(mark.word), **facts}), mark.journal)
