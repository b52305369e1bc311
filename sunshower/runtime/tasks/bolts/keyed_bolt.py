"""Runs bolts with a keyed state, which only successful inputs change.

    process(record) ──▶ changes held ──▶ it ends: put into the store     it raises: dropped
    flush()         ──▶ committed, before the acks of the batch leave

Storm: org.apache.storm.topology.StatefulBoltExecutor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Self

from sunshower.errors import TopologyError, Unserialisable
from sunshower.records import Schema
from sunshower.runtime.plan import PlannedStream
from sunshower.runtime.tasks.user_code import check_returned
from sunshower.topologies.components import Bolt, Context
from sunshower.topologies.graph import Component
from sunshower.topologies.groupings import Fields
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore, KeyValueState


class KeyedBolt(Bolt[Any, Any]):
    """Calls the methods of `bolt`, whose `state` it opens, commits and closes."""

    keeps_state = True

    def __init__(self, bolt: Any, store: KeyedStore, component: Component) -> None:
        self.bolt, self._store = bolt, store
        self._state = bolt.state = KeyValueState[Any, Any](store)
        self._by = {
            (read.source, read.stream): read.grouping.fields
            for read in component.inputs
            if isinstance(read.grouping, Fields)
        }
        self._announced: tuple[PlannedStream, Sequence[Any]] | None = None
        self.schema: Schema | None = None  # of the default stream
        self.check: Callable[[Any], None]  # raises BadEmit for an output that does not fit

    @classmethod
    def of(cls, component: Component) -> Self:
        """The bolt of one task."""
        return cls(component.instance(), deepcopy(component.store), component)

    def prepare(self, context: Context) -> None:
        self._context = context
        self._store.open(context)
        try:
            with self._state.apart():
                self.bolt.prepare(context)
            self._check_state()
        except BaseException:
            self._store.close()
            raise

    def announce(self, stream: PlannedStream, records: Sequence[Any]) -> None:
        """These records are the next: their states are read at once, with the first."""
        self._announced = stream, records
        self._state.enter()

    def process(self, record: Any) -> Iterator[Any]:
        self._begin()
        outputs = self.bolt.process(record)
        if outputs is not None:
            check_returned(outputs, self.schema)
            kind = None if self.schema is None else self.schema.instances
            kind = None if kind is tuple else kind
            for output in outputs:
                if type(output) is not kind:
                    self.check(output)
                yield output
        self._state.keep()

    def execute(self, tuple: Any, out: Any) -> None:
        self._begin()
        self.bolt.execute(tuple, out)
        self._state.keep()

    def tick(self) -> Any:
        self._open()
        with self._state.apart():
            outputs = self.bolt.tick()
            return list(outputs) if isinstance(outputs, Iterator) else outputs

    def flush(self) -> None:
        try:
            with self._state.apart():
                self.bolt.flush()
            self._check_state()
        except BaseException:
            self._store.discard()
            raise
        if self._store.is_open:
            self._store.commit()

    def discard(self) -> None:
        """Forget what was not flushed: the whole batch has failed."""
        self._state.drop()
        self._store.discard()

    def snapshot(self) -> Any:
        of_bolt = self.bolt.snapshot() if type(self.bolt).snapshot is not Bolt.snapshot else None
        stored = self._store.snapshot()
        return None if stored is None and of_bolt is None else (stored, of_bolt)

    def restore(self, state: Any) -> None:
        stored, of_bolt = state or (None, None)
        self._store.restore(stored)
        if type(self.bolt).restore is not Bolt.restore:
            self.bolt.restore(of_bolt)

    @property
    def by(self) -> tuple[str, ...]:
        """The fields of the key, or a name for it if its only task chooses keys itself."""
        return next((tuple(fields) for fields in self._by.values()), ("key",))

    def stored(self, keys: Sequence[Any]) -> list[Any]:
        """The committed states of keys; None where there is none."""
        return self._store.stored(keys)

    def stored_items(self) -> Iterator[tuple[Any, Any]]:
        """All keys and committed states, in no order."""
        return self._store.stored_items()

    def __sunshower_state_entries__(self) -> int | None:
        """How many keys have a state; None: not known."""
        return self._store.entry_count()

    def figures(self) -> Any:
        return self.bolt.figures()

    def result(self) -> Any:
        """That of the bolt; if it has none, the states that are in memory: key → value."""
        with self._state.apart():
            if type(self.bolt).result is not Bolt.result or self._store.snapshot() is None:
                return self.bolt.result()
            return dict(self._state)

    def cleanup(self) -> None:
        try:
            self.bolt.cleanup()
        finally:
            self._store.close()

    def _check_state(self) -> None:
        """Raise TopologyError if the bolt has put something else in place of its state."""
        if self.bolt.state is not self._state:
            raise TopologyError(
                f"{type(self.bolt).__name__} assigns {type(self.bolt.state).__name__} to "
                "self.state, and its state would be lost: change the entries, as in "
                "self.state[key] = value, and keep other things under another name"
            )

    def _begin(self) -> None:
        self._state.drop()
        if self._announced is None:
            return
        (stream, records), self._announced = self._announced, None
        self._open()
        if fields := self._by.get((stream.component, stream.spec.id)):
            try:
                self._store.fetch(map(stream.spec.schema.key(fields), records))
            except Unserialisable:
                """The record whose key it is fails when its own state is read."""

    def _open(self) -> None:
        if not self._store.is_open:  # another process has opened it, or it could not be
            self._store.open(self._context)
