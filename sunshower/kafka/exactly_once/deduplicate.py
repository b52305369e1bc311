"""Drops records with repeated keys; stores the seen keys together with the bolt's results."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

from sunshower.errors import StoreError, TopologyError
from sunshower.kafka.exactly_once.key_cache import KeyCache
from sunshower.kafka.producing.messages import Part, part_of
from sunshower.records import Schema
from sunshower.state.tree import Tree
from sunshower.topologies.components import Bolt, Context


def deduplicate(
    key: Part,
    bolt: Bolt[Any, Any],
    *,
    memory: int = 10_000,
    store: Callable[[], Tree] | None = None,
    path: str = "/deduplicated",
) -> Deduplicated:
    """Wraps `bolt` so that it gets only records whose `key` is not among the last `memory` keys.

    `key` is a field's name, or a function of the record. `bolt` must be a sink with `process` that
    keeps its results in itself: tuples it emitted could fail downstream, and their replay would be
    dropped here.

    With `store`, such as `InSqlite("counts.db")`, the keys and `bolt.snapshot()` are written there
    together after each batch, before it is acked, at `path`/topology/bolt/task. A restarted task
    continues with them, so that each key counts once, whichever process crashes. Versioned writes
    prevent a process that was replaced from overwriting its successor's data. Every write contains
    everything: keep `memory` and the state small (ZooKeeper's limit is 1 MB). Changes by the
    bolt's `tick` are written with the next batch. While the store is unreachable all batches fail
    and are replayed. Without `store` the keys survive a rebalance, but not a crash of the process.

    A repeat must reach the same task: group by the fields that the key is made of. Raises
    TopologyError for a bolt without `process`, `snapshot` and `restore`.
    """
    for method in ("process", "snapshot", "restore"):
        if getattr(type(bolt), method, None) in {getattr(Bolt, method), None}:
            raise TopologyError(
                f"deduplicate: {type(bolt).__name__} has no {method}; write one: it takes a record "
                "at a time, and what it has is kept together with the keys"
            )
    kind = Deduplicated if type(bolt).tick is Bolt.tick else _Ticking
    return kind(key, bolt, KeyCache(memory).memory, store, path)


class Deduplicated(Bolt[Any, None]):
    """The bolt that `deduplicate` returns."""

    def __init__(
        self,
        key: Part,
        bolt: Bolt[Any, Any],
        memory: int,
        tree: Callable[[], Tree] | None,
        path: str,
    ) -> None:
        self.bolt, self._key, self._memory, self._open, self._path = bolt, key, memory, tree, path
        self.tick_s = bolt.tick_s

    def check_input(self, schema: Schema) -> None:
        """Raise an error for records without the key, or that the bolt refuses."""
        if isinstance(self._key, str):
            schema.check_field(self._key, f"deduplicate({self._key!r})")
        self.bolt.check_input(schema)

    def prepare(self, context: Context) -> None:
        """Load the stored keys and results of the previous process."""
        self.repeats = 0
        self._seen, self._fresh = KeyCache(self._memory), dict[Hashable, None]()
        self.bolt.prepare(context)
        self._tree = self._open() if self._open else None
        self._place = f"{self._path}/{context.topology}/{context.component}/{context.index}"
        self._version: int | None = None  # of the stored node; None: there is none
        self._unclean = False  # the bolt contains unstored results of a failed batch
        if self._tree is not None:
            self._begun = self._pickled([])
            self._load()

    def process(self, record: Any) -> Any:
        """Pass a record to the bolt if its key is new."""
        self._clean()
        key = part_of(record, self._key)
        if key in self._seen or key in self._fresh:
            self.repeats += 1
            return None
        made = self.bolt.process(record)
        self._fresh[key] = None
        return made

    def flush(self) -> None:
        """Store the keys and the results; if that fails, undo the batch."""
        self._clean()
        try:
            self.bolt.flush()
            self._store([*self._seen.keys(), *self._fresh][-self._memory :])
        except Exception:
            self._fresh.clear()
            self._unclean = self._tree is not None
            with suppress(StoreError):  # then the next call tries again
                self._clean()
            raise
        self._seen.add(self._fresh)
        self._fresh.clear()

    def figures(self) -> dict[str, float]:
        """The figures of the bolt, and the number of dropped repeats."""
        return {**self.bolt.figures(), "repeats": self.repeats}

    def snapshot(self) -> tuple[list[Hashable], Any]:
        """The keys and the bolt's snapshot, for another process."""
        return self._seen.keys(), self.bolt.snapshot()

    def restore(self, state: tuple[list[Hashable], Any]) -> None:
        """Restore a snapshot, unless there is a store, which is at least as new."""
        if self._tree is None:
            keys, inner = state
            self._seen = KeyCache(self._memory, keys)
            self.bolt.restore(inner)

    def cleanup(self) -> None:
        """Clean up the bolt and close the store."""
        self.bolt.cleanup()
        if self._tree is not None:
            self._tree.close()

    def result(self) -> Any:
        return self.bolt.result()

    def _pickled(self, keys: list[Hashable]) -> bytes:
        return pickle.dumps((keys, self.bolt.snapshot()))

    def _store(self, keys: list[Hashable]) -> None:
        if self._tree is None or not self._fresh:
            return
        value = self._pickled(keys)
        if self._version is None:
            self._tree.create(self._place, value)
            self._version = 0
        else:
            self._version = self._tree.set(self._place, value, self._version)

    def _clean(self) -> None:
        """Undo a failed batch. Raises StoreError; then nothing may be processed, and the next call
        tries again."""
        if self._unclean:
            self._load()
            self._unclean = False

    def _load(self) -> None:
        """Restore what is stored, or else the initial state."""
        if self._tree is None:
            return
        node = self._tree.get(self._place)
        self._version = None if node is None else node.version
        keys, inner = pickle.loads(self._begun if node is None else node.value)  # noqa: S301
        self._seen = KeyCache(self._memory, keys)
        self.bolt.restore(inner)


class _Ticking(Deduplicated):
    """For a bolt that has a `tick`."""

    def tick(self) -> Any:
        """Call the bolt's `tick`."""
        self._clean()
        return self.bolt.tick()
