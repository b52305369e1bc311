"""Drops records with repeated keys; stores the seen keys together with the bolt's results."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable
from contextlib import suppress
from typing import Any

from sunshower import versions
from sunshower.arguments import COUNT, checked
from sunshower.codec import Codec
from sunshower.errors import StateMismatch, StoreError, TopologyError, Unserialisable
from sunshower.records import Schema, key_of
from sunshower.state.tree import Tree
from sunshower.topologies.components import Bolt, Context
from sunshower.topologies.record_parts import Part, RecordParts

_codec = Codec(exact=True)


# ---- once bolt -----------------------------------------------------------------------------------


class OnceBolt(Bolt[Any, None]):
    """Drops records whose key is stored, or in the current batch. Subclasses store the keys.

    `flush` writes the batch, before it is acked. If that fails, nothing of it was written and the
    batch fails; what is stored is loaded again before another record is processed.
    """

    writes_outside = True

    def begin(self) -> None:
        """Call this in `prepare`."""
        self.repeats = 0  # dropped records
        self._fresh: dict[Hashable, None] = {}  # the keys of this batch
        self._is_failed = False  # a batch that was not stored must be undone

    @abstractmethod
    def key_of(self, record: Any) -> Hashable:
        """What identifies the message of a record."""

    @abstractmethod
    def is_stored(self, key: Any) -> bool:
        """Whether the results cover this key. Raises StoreError."""

    @abstractmethod
    def accept(self, record: Any) -> Any:
        """Process a record whose key is new."""

    @abstractmethod
    def store(self, keys: Collection[Any]) -> None:
        """Write the results of the batch together with its keys, in one step, unless another
        process has written since they were loaded. Raises StoreError, WrongVersion."""

    @abstractmethod
    def load(self) -> None:
        """Discard the batch, and continue with what is stored. Raises StoreError."""

    def process(self, record: Any) -> Any:
        self.undo_failed()
        key = self.key_of(record)
        if key in self._fresh or self.is_stored(key):
            self.repeats += 1
            return None
        output = self.accept(record)
        self._fresh[key] = None
        return output

    def flush(self) -> None:
        """Store the batch; if that fails, undo it."""
        self.undo_failed()
        try:
            self.store(self._fresh)
        except BaseException:  # also SystemExit, which fails the batch like any other error
            self._is_failed = True
            with suppress(StoreError):  # then the next call tries again
                self.undo_failed()
            raise
        finally:
            self._fresh = {}

    def undo_failed(self) -> None:
        """Undo a failed batch, if there is one. Raises StoreError; then nothing may be processed,
        and the next call tries again."""
        if self._is_failed:
            self.load()
            self._is_failed = False

    def figures(self) -> dict[str, float]:
        return {"repeats": self.repeats}


# ---- key cache -----------------------------------------------------------------------------------


class KeyCache:
    """A set of at most `memory` keys, at least one."""

    def __init__(self, memory: int, keys: Iterable[Hashable] = ()) -> None:
        self.memory = memory
        self._keys: dict[Hashable, None] = {}
        self.add(keys)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: Iterable[Hashable]) -> None:
        """Add these; a key that is added again counts as new."""
        for key in keys:
            self._keys.pop(key, None)
            self._keys[key] = None
        while len(self._keys) > self.memory:
            del self._keys[next(iter(self._keys))]

    def keys(self) -> list[Hashable]:
        """All keys, the oldest first."""
        return list(self._keys)


# ---- deduplicate ---------------------------------------------------------------------------------


@checked(memory=COUNT)
def deduplicate(
    key: Part,
    bolt: Bolt[Any, Any],
    *,
    memory: int = 10_000,
    store: Callable[[], Tree] | None = None,
    path: str = "/deduplicated",
) -> Deduplicated:
    """Wraps `bolt` so that it gets only records whose `key` is not among the last `memory` keys.

    `key` is a field's name, or a function of the record; keys are equal as those of `group_by`.
    `bolt` must be a sink with `process`, `snapshot` and `restore` that keeps its results in itself.
    With `store`, such as `InSqlite("counts.db")`, the keys and `bolt.snapshot()` are written there
    together after each batch, at `path`/topology/bolt/task; without it they survive a rebalance,
    but not a crash. docs/KAFKA.md has what it requires. Raises TopologyError for a bolt without
    these methods, ConfigError for other wrong arguments; Unserialisable for keys that cannot be
    stored.
    """
    for method in ("process", "snapshot", "restore"):
        if getattr(type(bolt), method, None) in {getattr(Bolt, method), None}:
            raise TopologyError(
                f"deduplicate: {type(bolt).__name__} has no {method}; write one: it takes a record "
                "at a time, and what it has is kept together with the keys"
            )
    kind = Deduplicated if type(bolt).tick is Bolt.tick else _Ticking
    return kind(key, bolt, memory, store, path)


class Deduplicated(OnceBolt):
    """The bolt that `deduplicate` returns. It stores its keys and its results in one node."""

    def __init__(
        self,
        key: Part,
        bolt: Bolt[Any, Any],
        memory: int,
        store: Callable[[], Tree] | None,
        path: str,
    ) -> None:
        self.bolt, self._key, self._memory, self._open, self._path = bolt, key, memory, store, path
        self._parts = RecordParts(f"deduplicate({key!r})")
        self.tick_s = bolt.tick_s

    def check_input(self, schema: Schema) -> None:
        self._parts.check(schema, [self._key])
        self.bolt.check_input(schema)

    def prepare(self, context: Context) -> None:
        self.begin()
        self._get_key = self._parts.getter(self._key)
        self._stored = KeyCache(self._memory)
        self.bolt.prepare(context)
        self._tree = self._open() if self._open else None
        self._node = f"{self._path}/{context.topology}/{context.component}/{context.index}"
        self._version: int | None = None  # of the stored node; None: there is none
        if self._tree is not None:
            self._initial = self._encoded([])
            self.load()

    def key_of(self, record: Any) -> Hashable:
        key: Hashable = key_of(self._get_key(record))
        return key

    def is_stored(self, key: Hashable) -> bool:
        return key in self._stored

    def accept(self, record: Any) -> Any:
        return self.bolt.process(record)

    def store(self, keys: Collection[Hashable]) -> None:
        self.bolt.flush()
        if self._tree is not None and keys:
            newest = [*self._stored.keys(), *keys][-self._memory :]
            value = self._encoded(newest)
            if self._version is None:
                self._tree.create(self._node, value)
                self._version = 0
            else:
                self._version = self._tree.set(self._node, value, self._version)
        self._stored.add(keys)

    def load(self) -> None:
        """Restore what is stored, or else the initial state."""
        if self._tree is None:
            return
        node = self._tree.get(self._node)
        self._version = None if node is None else node.version
        self._restore(self._decoded(self._initial if node is None else node.value))

    def _encoded(self, keys: list[Any]) -> bytes:
        try:
            return _codec.encode([versions.KEYS, keys, self.bolt.snapshot()])
        except Unserialisable as error:
            raise Unserialisable(
                f"the keys and results for {self._node} cannot be stored: {error}. "
                "docs/RECORDS.md lists the types that can"
            ) from error

    def _decoded(self, value: bytes) -> tuple[list[Hashable], Any]:
        try:
            layout, *stored = _codec.decode(value)
            if type(layout) is not int:
                raise ValueError(f"it is {value!r:.100}")
            remedy = "use the release that wrote it, or give another `path`"
            versions.check(self._node, layout, versions.KEYS, remedy)
            keys, results = stored
            if type(keys) is not list:
                raise ValueError(f"it is {value!r:.100}")
            keys = [*map(key_of, dict.fromkeys(keys))]  # TypeError for what cannot be a key
        except (ValueError, TypeError) as error:
            raise StateMismatch(
                f"{self._node} does not hold the keys and results of a deduplicate "
                f"({error!s:.200}): it is corrupt, of something else, or of a version that pickled "
                "them. A pickle is not read, because it could run code. Remove the node, or give "
                "another `path`, to begin without keys and results"
            ) from None
        return keys, results

    def _restore(self, state: tuple[list[Hashable], Any]) -> None:
        keys, results = state
        self._stored = KeyCache(self._memory, keys)
        self.bolt.restore(results)

    def figures(self) -> dict[str, float]:
        return {**self.bolt.figures(), **super().figures()}

    def snapshot(self) -> tuple[list[Hashable], Any]:
        return self._stored.keys(), self.bolt.snapshot()

    def restore(self, state: tuple[list[Hashable], Any]) -> None:
        """Restore a snapshot, unless there is a store, which is at least as new."""
        if self._tree is None:
            self._restore(state)

    def cleanup(self) -> None:
        self.bolt.cleanup()
        if self._tree is not None:
            self._tree.close()

    def result(self) -> Any:
        return self.bolt.result()


class _Ticking(Deduplicated):
    """For a bolt that has a `tick`."""

    def tick(self) -> Any:
        self.undo_failed()
        return self.bolt.tick()
