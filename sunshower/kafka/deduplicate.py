"""Each key counts once: repeats are dropped; what was seen is kept together with the results."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

from sunshower.errors import StoreError, TopologyError
from sunshower.kafka.messages import Part, part_of
from sunshower.kafka.seen import Seen
from sunshower.records import Schema
from sunshower.stores.tree import Tree
from sunshower.topologies.components import Bolt, Context


def deduplicate(
    key: Part,
    bolt: Bolt[Any, Any],
    *,
    memory: int = 10_000,
    tree: Callable[[], Tree] | None = None,
    path: str = "/deduplicated",
) -> Deduplicated:
    """`bolt`, which is handed only records whose `key` it has not had among the last `memory` keys.

    `key` is a field's name, or a function of the record. `bolt` is a sink: it has `process`, and
    keeps its results in itself. What it would emit could fail further down, and the replay would be
    dropped here.

    With `tree`, a function that opens a store, the keys and what `bolt.snapshot()` returns are
    written there in one piece after each batch, before it is acked, at `path`/topology/bolt/task;
    a task that is started again goes on with it: each key counts once, whoever dies. A process that
    was taken for dead writes only on top of what its successor has written. All of it is written
    each time: keep `memory`, and the state, small (ZooKeeper takes 1 MB). What the bolt's `tick`
    changes is written with the next batch. While the store cannot be reached all batches fail, and
    come again. Without `tree` the keys live as long as the task, and go along where it goes.

    A repeat must come to the same task: group by the fields that the key is made of. Raises
    TopologyError for a bolt without `process`, `snapshot` and `restore`.
    """
    for method in ("process", "snapshot", "restore"):
        if getattr(type(bolt), method, None) in {getattr(Bolt, method), None}:
            raise TopologyError(
                f"deduplicate: {type(bolt).__name__} has no {method}; write one: it takes a record "
                "at a time, and what it has is kept together with the keys"
            )
    kind = Deduplicated if type(bolt).tick is Bolt.tick else _Ticking
    return kind(key, bolt, Seen(memory).memory, tree, path)


class Deduplicated(Bolt[Any, None]):
    """See deduplicate."""

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
        """Refuse records without the key, and those that the bolt refuses."""
        if isinstance(self._key, str):
            schema.check_field(self._key, f"deduplicate({self._key!r})")
        self.bolt.check_input(schema)

    def prepare(self, context: Context) -> None:
        """Go on where a former life has ended."""
        self.repeats = 0
        self._seen, self._fresh = Seen(self._memory), dict[Hashable, None]()
        self.bolt.prepare(context)
        self._tree = self._open() if self._open else None
        self._place = f"{self._path}/{context.topology}/{context.component}/{context.index}"
        self._version: int | None = None  # of what is stored; None: nothing is
        self._unclean = False  # the bolt has what is not stored, of a batch that failed
        if self._tree is not None:
            self._begun = self._pickled([])
            self._load()

    def process(self, record: Any) -> Any:
        """Hand a record on, if its key is new."""
        self._clean()
        key = part_of(record, self._key)
        if key in self._seen or key in self._fresh:
            self.repeats += 1
            return None
        made = self.bolt.process(record)
        self._fresh[key] = None
        return made

    def flush(self) -> None:
        """Keep the keys and the results; if that cannot be done, nothing of the batch has been."""
        self._clean()
        try:
            self.bolt.flush()
            self._store([*self._seen.keys(), *self._fresh][-self._memory :])
        except Exception:
            self._fresh.clear()
            self._unclean = self._tree is not None
            with suppress(StoreError):  # then whoever is called next tries again
                self._clean()
            raise
        self._seen.add(self._fresh)
        self._fresh.clear()

    def figures(self) -> dict[str, float]:
        """Those of the bolt, and how many repeats were dropped."""
        return {**self.bolt.figures(), "repeats": self.repeats}

    def snapshot(self) -> tuple[list[Hashable], Any]:
        """The keys and what the bolt has, for another process."""
        return self._seen.keys(), self.bolt.snapshot()

    def restore(self, state: tuple[list[Hashable], Any]) -> None:
        """Go on with it, unless a store has what is at least as new."""
        if self._tree is None:
            keys, inner = state
            self._seen = Seen(self._memory, keys)
            self.bolt.restore(inner)

    def cleanup(self) -> None:
        """Let go of the store."""
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
        """Undo what a batch has left behind that failed. Raises StoreError; then it is as it was,
        and nothing may be counted."""
        if self._unclean:
            self._load()
            self._unclean = False

    def _load(self) -> None:
        """Begin with what is stored, or as at the first beginning."""
        if self._tree is None:
            return
        node = self._tree.get(self._place)
        self._version = None if node is None else node.version
        keys, inner = pickle.loads(self._begun if node is None else node.value)  # noqa: S301
        self._seen = Seen(self._memory, keys)
        self.bolt.restore(inner)


class _Ticking(Deduplicated):
    """Of a bolt that has a `tick`."""

    def tick(self) -> Any:
        """The bolt's."""
        self._clean()
        return self.bolt.tick()
