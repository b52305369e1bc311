"""Opens, moves and migrates the stored state of one task, and numbers its writes.

    slot.open(context)              the values of this task, whatever their version and number of
                                    tasks were
    slot.begin_commit(attempt)      what follows is one write
    slot.state.multi_put(…)
    slot.commit(attempt)            all of it is stored now, or this has raised
    slot.close()

Totals, keyed states, windows and joins have a slot of ordinary streams: each write has a new
number, and each opening a new epoch, so a state never takes a write for the repetition of another
one. `BatchSlot` (sunshower/trident/stages/persisting.py) writes under the number of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from sunshower.errors import (
    FailedBatch,
    StaleAttempt,
    StateMismatch,
    StoreUnreachable,
    TopologyError,
)
from sunshower.json_values import StoredValues, are_flat, as_fields
from sunshower.records import copied
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import (
    ABOUT,
    ENTRY,
    ROW,
    FoundPart,
    Key,
    MapState,
    Moving,
    Place,
    Spread,
    StateFactory,
    Update,
    count_of,
    is_own,
    numbers_of,
)

if TYPE_CHECKING:
    from sunshower.topologies.graph import Component
    from sunshower.topologies.operators.windows.event_times import Time

Join: TypeAlias = Callable[[Sequence[FoundPart]], Mapping[Key, Any]]  # as Moving.join
Migration: TypeAlias = Callable[[int, Any], Any]  # of (the version of a value, the value)


# ---- values of a batch ---------------------------------------------------------------------------
# What a batch reads and writes, and what recent batches have: each key is read once.

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_MISSING: Any = object()


class RecentValues(Generic[K, T]):
    """The values that a batch has read (`found`) and put (`written`), and those of recent batches,
    at most `size_max` in all; they are valid while there is no other writer. `size_of`: the size of
    a key and its value; None: each counts as 1.

    The recent ones have two generations: values go to the young one; when that is full it becomes
    the old one, and the old one is dropped. Storm:
    org.apache.storm.trident.state.map.CachedBatchReadsMap, CachedMap (an LRU).
    """

    def __init__(self, size_max: int = 0, size_of: Callable[[K, T], int] | None = None) -> None:
        self._half = size_max // 2  # of each generation
        self._size_of = size_of
        self._young: dict[K, T] = {}
        self._old: dict[K, T] = {}
        self._size = 0  # of the young generation, or more
        self.found: dict[K, T] = {}
        self.written: dict[K, Any] = {}

    def fetch(self, keys: Iterable[K], read: Callable[[Sequence[K]], Iterable[T]]) -> None:
        """Find the values of keys, all that are not there with one call of `read`."""
        found, written = self.found, self.written
        missing = [key for key in dict.fromkeys(keys) if key not in found and key not in written]
        if not missing:
            return
        recent = self.recent(missing)
        found.update(recent)
        if len(recent) < len(missing):
            missing = [key for key in missing if key not in recent]
            found.update(zip(missing, read(missing), strict=True))

    def recent(self, keys: Iterable[K]) -> dict[K, T]:
        """The values that recent batches have of these keys."""
        young, old, missing = self._young, self._old, _MISSING
        values = dict[K, T]()
        if not young and not old:
            return values
        for key in keys:
            value = young.get(key, missing)
            if value is missing:
                value = old.get(key, missing)
            if value is not missing:
                values[key] = value
        return values

    def keep(self, used: Mapping[K, T], changed: Iterable[K] = ()) -> None:
        """Keep what the batch has read or written for those that follow, and drop other keys that
        have changed."""
        for key in changed:
            self._young.pop(key, None)
            self._old.pop(key, None)
        self._young.update(used)
        if self._size_of is None:
            self._size = len(self._young)
        else:
            self._size += sum(map(self._size_of, used.keys(), used.values()))
        if self._size > self._half:
            self._old = self._young if self._size <= 2 * self._half else {}
            self._young, self._size = {}, 0

    def discard(self) -> None:
        self.found.clear()
        self.written.clear()

    def clear(self) -> None:
        self.discard()
        self._young, self._old, self._size = {}, {}, 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


class StateDraft:
    """What a batch reads of a state, and what it will write there at once."""

    def __init__(self, state: MapState, *, copies: bool = False) -> None:
        """`copies`: whether `get` returns copies, for those that change what it returns: a state of
        batches writes the value before the batch beside the new one."""
        self._state, self._copies = state, copies
        self._values: RecentValues[Key, Any] = RecentValues()

    def fetch(self, keys: Iterable[Key]) -> None:
        """Read many keys at once, before `get` is called for each."""
        self._values.fetch(keys, self._state.multi_get)

    def get(self, key: Key) -> Any:
        found, written = self._values.found, self._values.written
        if key not in written and key not in found:
            self.fetch([key])
        value = written[key] if key in written else found[key]
        return copied(value) if self._copies else value

    def view(self, keys: Sequence[Key]) -> list[Any]:
        """The values of keys. Do not change them."""
        self.fetch(keys)
        return [*map(self.get, keys)]

    def put(self, key: Key, value: Any) -> None:
        """Replace the value of a key; None: there is none."""
        self._values.written[key] = value

    def remove(self, key: Key) -> None:
        self.put(key, None)

    def replace(self, values: Mapping[Key, Any]) -> None:
        """Replace the values of keys; None: there is none."""
        self._values.written.update(values)

    def write(self) -> None:
        """Write what was put and removed to the state. Of a key that was put and removed, and was
        not there before, nothing is written."""
        found, written = self._values.found, self._values.written
        unread = [key for key, value in written.items() if value is None and key not in found]
        if unread:
            found.update(zip(unread, self._state.multi_get(unread), strict=True))
        changes = {
            key: value
            for key, value in written.items()
            if value is not None or found[key] is not None
        }
        self._state.multi_put([*changes], [*changes.values()])


def own_copies(values: list[Any]) -> list[Any]:
    """Values that are in the memory of a task, as their readers may keep and change them: later
    records change those in the memory, and readers must not."""
    return values if are_flat(values, depth=0) else [*map(copied, values)]


class TaskMemory:
    """A MapState in the memory of its task, which is lost with the process."""

    def __init__(self) -> None:
        self.values: dict[Key, Any] = {}
        self._written: dict[Key, Any] = {}

    def begin_commit(self, attempt: Attempt) -> None:
        self._written = {}

    def commit(self, attempt: Attempt) -> None:
        self.values.update(self._written)
        for key in [key for key, value in self._written.items() if value is None]:
            del self.values[key]
        self._written = {}

    def abort(self) -> None:
        self._written = {}

    def close(self) -> None: ...

    def multi_get(self, keys: Sequence[Key]) -> list[Any]:
        return [self._now(key) for key in keys] if self._written else [*map(self.values.get, keys)]

    def multi_update(self, keys: Sequence[Key], updates: Sequence[Update]) -> list[Any]:
        values = [update(self._now(key)) for key, update in zip(keys, updates, strict=True)]
        self._written.update(zip(keys, values, strict=True))
        return own_copies(values)

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        self.put(dict(zip(keys, values, strict=True)))

    def put(self, changes: dict[Key, Any]) -> None:
        """As multi_put; the dictionary may be kept until the commit."""
        self._written = {**self._written, **changes} if self._written else changes

    def multi_remove(self, keys: Sequence[Key]) -> None:
        self.multi_put(keys, [None] * len(keys))

    def items(self) -> Iterator[tuple[Key, Any]]:
        return iter([*self.values.items()])

    def entry_count(self) -> int:
        return len(self.values)

    def _now(self, key: Key) -> Any:
        return self._written[key] if key in self._written else self.values.get(key)


# ---- versions ------------------------------------------------------------------------------------


def stamped(plain: Any, now: Time) -> Any:
    """A converted value with its time, as it is stored."""
    return {"(at)": [{"(Decimal)": str(now)} if isinstance(now, Decimal) else now, plain]}


def unstamped(stored: Any) -> tuple[Time | None, Any]:
    """The time of a stored value, None without one, and the value."""
    match stored:
        case {"(at)": [int() | float() as at, plain], **others} if not others:
            return at, plain
        case {"(at)": [{"(Decimal)": str() as text}, plain], **others} if not others:
            return Decimal(text), plain
    return None, stored


class ValuesVersion:
    """The version of values and the fields of their record types, which a state says of itself, and
    how it makes new values of those of an earlier version."""

    def __init__(
        self, values: StoredValues, version: int, migrate: Migration | None, where: str
    ) -> None:
        self.values, self.version, self._migrate, self._where = values, version, migrate, where

    def about(self, stored: Any = None) -> dict[str, Any]:
        """What is stored of them, after `found`, which `migrated` has accepted."""
        about = {"version": self.version, "records": self.values.shapes()}
        is_same = stored is not None and stored["version"] == self.version
        former = self.values.former(stored["records"] if is_same else {})
        return {**about, "renamed": former} if former else about

    def learn(self, stored: Any) -> None:
        """Note how fields were called in a part of which `found` is stored."""
        if stored is None or stored["version"] != self.version:
            return
        self.values.learn(stored.get("renamed", {}))
        if not self.values.changed(stored["records"]):
            self.values.learn(self.about(stored).get("renamed", {}))

    def migrated(
        self, about: Any, items: Callable[[], Iterable[tuple[Key, Any]]]
    ) -> dict[Key, Any]:
        """What opening changes: all values, if they are of an earlier version. `about`: what is
        stored of them. Raises StateMismatch for values that this program cannot read."""
        if about is None:
            return {}
        match about:
            case {"version": int() as former, "records": dict() as records}:
                version = self.version
            case _:
                raise StateMismatch(
                    f"{self._where}: {about!r:.100} is not what a state says of itself: somebody "
                    "else has written there; give the state another name=, and it begins empty"
                )
        if former == version:
            self.values.learn(about.get("renamed", {}))
            if how := self.values.changed(records):
                raise StateMismatch(
                    f"{self._where}: {how}. Give new fields a default; or give version="
                    f"{version + 1} and migrate=, a function (version, value) that makes new "
                    "values; or give the state another name=, under which it begins empty"
                )
            return {}
        if former > version or self._migrate is None:
            raise StateMismatch(
                f"{self._where}: the stored values are of version {former}, and this is version "
                f"{version}: give migrate=, a function (version, value) that makes new values, use "
                "the program that wrote them, or give the state another name="
            )
        changes: dict[Key, Any] = {}
        heads = {key: stored for key, stored in items() if numbers_of(unstamped(stored)[1])}
        for key, stored in items():
            at, plain = unstamped(stored)
            if type(key) is tuple and key[0] in (ROW, ENTRY):
                _, head = unstamped(heads.get(key[1]))
                if key[0] == ENTRY or (head is not None and "(list)" in head):
                    changes[key] = [*plain[:-1], self._made_anew(former, plain[-1])]
            elif not is_own(key) and key not in heads:
                value_now = self._made_anew(former, plain)
                changes[key] = (
                    value_now if at is None or value_now is None else stamped(value_now, at)
                )
        return changes

    def _made_anew(self, version: int, plain: Any) -> Any:
        assert self._migrate is not None, "it was asked before"
        return self.values.plain(self._migrate(version, as_fields(plain)))


# ---- slot ----------------------------------------------------------------------------------------


def check_factory(factory: Any, where: str) -> None:
    """Raise TopologyError for a value that is neither a state factory nor None."""
    if factory is not None and (isinstance(factory, type) or not hasattr(factory, "make")):
        hint = 'give one like SqliteState("counts.db")'
        raise TopologyError(f"{where}: {factory!r} is not a state; {hint}")


def nothing_else(_: Sequence[FoundPart]) -> dict[Key, Any]:
    """Nothing is stored beside the keys of records."""
    return {}


class StateSlot:
    """The state of one task; several operators of its stage may share it. Without a factory it is
    in the memory of the task.

    With a `version` the state says what its values are, and opening it writes: a former life of
    the task, which may still run somewhere, can store nothing afterwards, and the slot writes
    nothing more after a write whose outcome is unknown. Open it again then.
    """

    is_of_batches = False  # whether a write and what it emits are repeated together
    by: Sequence[str] = ()  # the fields of its keys, if its operator does not say them

    def __init__(
        self,
        factory: StateFactory | None,
        name: str,
        where: str,
        join: Join = nothing_else,
        *,
        spread: Spread = Spread.BY_KEY,
        version: ValuesVersion | None = None,
    ) -> None:
        """`name`: by which a later run finds the state. `join`: as Moving.join, of what is beside
        the values; `spread`: by which another number of tasks finds its keys. Raises TopologyError
        for a value that is not a state factory."""
        check_factory(factory, where)
        self.factory, self.name, self.version = factory, name, version
        self._join, self.spread = join, spread
        self.values = ""  # as of Place; set by Topology.graph
        self._state: MapState | None = None
        self._was_open = False
        self._epoch, self._number = 1, 0  # of this opening, and of its last write
        self._due: Mapping[Key, Any] = {}  # what the first write of this opening adds
        self._refusal: BaseException | None = None  # why nothing more is written

    def open(self, context: Context) -> None:
        """Open the state, unless it is open. Raises what the factory raises, such as
        StoreUnreachable, and StateMismatch for values that this program cannot read."""
        if self.is_open:
            return
        self.close()
        self._epoch, self._refusal, self._due = int(context.clock.now() * 1e6), None, {}
        try:
            self._begin(context)
        except BaseException:
            self.close()
            raise
        self._was_open = True

    def hold_in_memory(self, memories: list[tuple[StateFactory, Any]]) -> None:
        """Begin empty, and store nothing. `memories`: of each factory, what stands for it."""
        self.factory = None

    @property
    def is_open(self) -> bool:
        """Whether it is open, and may write."""
        return self._state is not None and self._refusal is None

    @property
    def state(self) -> MapState:
        if self._state is None:
            raise RuntimeError(f"state {self.name!r} is not open")
        return self._state

    @property
    def memory(self) -> TaskMemory | None:
        """The state, if it is in the memory of the task."""
        return self._state if isinstance(self._state, TaskMemory) else None

    @property
    def undoes_attempts(self) -> bool:
        """Whether what an earlier attempt of a write has stored is undone without being written."""
        return True

    @property
    def must_undo(self) -> bool:
        """Whether the write that has begun must undo what an earlier attempt of it has stored."""
        return False

    def number(self, attempt: Attempt) -> int:
        """The number of the write that has begun; a later write of a group has a higher one. It is
        the time of the opening in microseconds, and one more for each write, so those of a later
        life of the task are higher."""
        return self._epoch + self._number

    def pass_number(self, number: int) -> None:
        """Let the numbers that follow be higher than this one."""
        self._epoch = max(self._epoch, number - self._number)

    def begin_commit(self, attempt: Attempt) -> None:
        """Begin a write, under the next number, which no other one has."""
        if self._refusal is not None:
            raise self._refused(self._refusal)
        if self.version is None:
            self._pass_others()
        self._number += 1
        self.state.begin_commit(self._attempt)

    def commit(self, attempt: Attempt) -> None:
        self.state.commit(self._attempt)

    def write(self, changes: Mapping[Key, Any]) -> None:
        """Write changes, all or nothing; None: removed."""
        changes = {**self._due, **changes}
        try:
            self.begin_commit(self._attempt)
            if (memory := self.memory) is not None:  # without hashing the keys again
                memory.put(changes)
            else:
                self.state.multi_put(list(changes), list(changes.values()))
            self.commit(self._attempt)
            self._due = {}
        except BaseException as error:
            self.state.abort()
            if self._refusal is None:
                if isinstance(error, FailedBatch | StaleAttempt | StoreUnreachable):
                    self._refusal = error
                if isinstance(error, FailedBatch | StaleAttempt):
                    raise self._refused(error) from error
            raise  # the write may happen later: opening again keeps it out, before anything is read

    def items(self) -> Iterator[tuple[Key, Any]]:
        """All entries, in no order."""
        return self.state.items()

    def entry_count(self) -> int | None:
        count = count_of(self._state)
        if count is None or self.factory is None or self.version is None:
            return count
        return max(count - 1, 0)  # without ABOUT

    def close(self) -> None:
        if self._state is not None:
            self._state.close()
        self._state = None

    def _begin(self, context: Context) -> None:
        if self.factory is None:
            self._state = TaskMemory()
            return
        moving = Moving(self.spread, self._joined, not self._was_open)
        self._state = self.factory.make(
            Place(
                *(context.topology, self.name, context.index, context.parallelism),
                moving=moving,
                values=self.values,
            )
        )
        if (last := self.last_attempt) is not None:
            self._epoch, self._number = max(self._epoch, last.epoch + 1), last.txid
        if self.version is not None:
            (about,) = self._state.multi_get([ABOUT])
            changes = self.version.migrated(about, self._state.items)
            new: dict[Key, Any] = {ABOUT: self.version.about(about)}
            if about is None or changes:
                self.write({**changes, **new})
            else:  # until the first write, a former program that is in force again can read it
                self.write({ABOUT: about})
                self._due = new

    def _joined(self, parts: Sequence[FoundPart]) -> Mapping[Key, Any]:
        """What this task has of those of another number of tasks, of one version each."""
        changes = self._join(parts)
        if self.version is None:
            return changes
        abouts, migrated = [part.beside.get(ABOUT) for part in parts], dict[Key, Any]()
        for part, about in zip(parts, abouts, strict=True):
            migrated |= self.version.migrated(about, part.items)
            self.version.learn(about)
        is_same = not migrated and all(about == abouts[0] for about in abouts)
        about = abouts[0] if is_same and abouts else self.version.about()
        return {**changes, **migrated, ABOUT: about or self.version.about()}

    @property
    def _attempt(self) -> Attempt:
        return Attempt(self._number, 0, self._epoch)

    @property
    def last_attempt(self) -> Attempt | None:
        """The attempt that has written last, if the state says so."""
        last: Attempt | None = getattr(self._state, "last_attempt", None)
        return last

    def _pass_others(self) -> None:
        """Number the next write after those of other processes, such as this task's former life."""
        if (last := self.last_attempt) is not None:
            self._number = max(self._number, last.txid)
            if last.epoch > self._epoch:
                self._epoch = last.epoch + 1

    def _refused(self, error: BaseException) -> StoreUnreachable:
        """An outage: it ends when the task opens the store again."""
        return StoreUnreachable(
            f"a later life of this task has opened the store {self.name!r}, or a write that was "
            f"given up has arrived late; this one writes nothing more: {error}"
        )


# ---- the states of a component -------------------------------------------------------------------


class HeldState(NamedTuple):
    """A state of a component, and what has it."""

    operator: Any  # None: the function of a bolt
    slot: StateSlot
    store: Any  # the KeyedStore in front of the slot; None: it is not a keyed state


def held_states(component: Component) -> list[HeldState]:
    """The states of a component in the order of its operators, each with the first that has it."""
    holders: list[tuple[Any, Any]] = [(None, component.store)]
    for node in component.operators:
        calls = getattr(node, "calls", None)  # what KeyedInBatches runs
        operator = node if getattr(calls, "store", None) is None else calls
        holders.append((operator, getattr(operator, "store", None)))
    held: dict[int, HeldState] = {}
    for operator, store in holders:
        slot = getattr(operator if store is None else store, "slot", None)
        if isinstance(slot, StateSlot):
            held.setdefault(id(slot), HeldState(operator, slot, store))
    return [*held.values()]
