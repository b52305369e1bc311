"""The topologies of batches: words counted exactly once, and batches without rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.start_signal import StartSignal
from sunshower import Topology
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.exactly_once.batch_spouts import BatchOptions, KafkaOpaque
from sunshower.kafka.formats import Text
from sunshower.state import SqliteState
from sunshower.topologies.operators.states import StateKind
from sunshower.trident import InSqlite, InZooKeeper, batches, count
from sunshower.trident.declaration.declare import as_trident_spout
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.fixed import TextFileBatches
from sunshower.trident.spouts.port import OpaquePartitionedSpout, PartitionedSpout

Store: TypeAlias = InSqlite | InZooKeeper

SOURCE = "source"
BEGUN, SUCCEEDED = "begun at", "succeeded at"
MAX_BATCHES = 3


class WaitingBatches:
    """Begins no batch before the start signal. Notes when it was called for the first one, so that
    connecting and reading are measured, and when the last one was committed."""

    def __init__(self, spout: Any, signal: StartSignal) -> None:
        self._spout, self._signal = as_trident_spout(spout), signal
        self.emits, self.kind = self._spout.emits, self._spout.kind
        self.commits, self.parallelism_max = self._spout.commits, self._spout.parallelism_max

    def coordinator(self, *arguments: Any) -> Any:
        return _Coordinator(self._spout.coordinator(*arguments), self._signal)

    def emitter(self, *arguments: Any) -> Any:
        return _Emitter(self._spout.emitter(*arguments))


class _Wrapper:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Coordinator(_Wrapper):
    def __init__(self, inner: Any, signal: StartSignal) -> None:
        super().__init__(inner)
        self._signal = signal

    def is_ready(self, txid: int) -> bool:
        return self._signal.has_started and bool(self._inner.is_ready(txid))


class _Emitter(_Wrapper):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._times: dict[str, float] = {}

    def emit_batch(self, *arguments: Any) -> None:
        self._times.setdefault(BEGUN, time.monotonic())
        self._inner.emit_batch(*arguments)

    def success(self, attempt: Any) -> None:
        self._times[SUCCEEDED] = time.monotonic()
        self._inner.success(attempt)

    def figures(self) -> Mapping[str, float]:
        return {**self._inner.figures(), **self._times}


class _EmptyPartitions:
    """Two partitions without any rows."""

    emits = ("text",)

    def partitions(self) -> Sequence[str]:
        return ["0", "1"]

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        return {"at": 0}


class EmptyOpaqueSpout(_EmptyPartitions, OpaquePartitionedSpout):
    pass


class EmptyTransactionalSpout(_EmptyPartitions, PartitionedSpout):
    pass


def split_line(line: Any) -> Iterator[tuple[str]]:
    for word in line[0].split():
        yield (word,)


def words_in_files(
    signal: StartSignal,
    lines: Path,
    folder: Path,
    records: int,
    kind: StateKind = StateKind.OPAQUE,
    store: Store | None = None,
) -> Topology:
    """All files of the folder `lines`, in batches with `records` lines for each of two tasks."""
    spout = TextFileBatches(lines / "*.txt", bounds=Bounds(records=records))
    return _count_words(spout, signal, folder, kind, store)


def words_in_kafka(
    signal: StartSignal, settings: Mapping[str, Any], topic: str, folder: Path, records: int
) -> Topology:
    """All messages that a topic has now."""
    options = BatchOptions(
        first=StartPosition.EARLIEST, until_end=True, bounds=Bounds(records=records, bytes=64 << 20)
    )
    spout = KafkaOpaque(settings, topics=[topic], value=Text(), fields=("value",), options=options)
    return _count_words(spout, signal, folder, StateKind.OPAQUE)


def without_rows(
    signal: StartSignal, folder: Path, kind: StateKind, workers: int = 2, store: Store | None = None
) -> Topology:
    """The word count of a source without lines, opaque or transactional."""
    spout = EmptyOpaqueSpout() if kind is StateKind.OPAQUE else EmptyTransactionalSpout()
    return _count_words(spout, signal, folder, StateKind.OPAQUE, store, workers)


def state_of(folder: Path, kind: StateKind = StateKind.OPAQUE) -> SqliteState:
    """The state with the counts of a topology in this folder."""
    return SqliteState(folder / "counts.db", kind)


def _count_words(
    spout: Any,
    signal: StartSignal,
    folder: Path,
    kind: StateKind,
    store: Store | None = None,
    workers: int = 2,
) -> Topology:
    """`store`: for the progress of the batches, by default an SQLite file; counts have another."""
    topology = Topology("exactly-once", workers=workers)
    lines = batches(
        topology,
        SOURCE,
        WaitingBatches(spout, signal),
        parallelism=2,
        store=store or InSqlite(folder / "batches.db"),
        max_batches=MAX_BATCHES,
    )
    words = lines.flat_map(split_line, fields=("word",))
    words.group_by("word").aggregate(count(), state=state_of(folder, kind), parallelism=2)
    return topology
