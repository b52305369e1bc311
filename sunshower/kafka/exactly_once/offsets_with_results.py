"""Exactly once without batches: stores offsets and results in the same transaction.

    kept = OffsetsWithResults("counts.db", "words")    # or "postgresql://host/database"
    KafkaSpout(…, fields=("topic", "partition", "offset", "value"),
               options=KafkaOptions(store=kept))
    kept.bolt(count, "CREATE TABLE IF NOT EXISTS counts (word TEXT PRIMARY KEY, number INTEGER)")

The spout is a KafkaSpout with at-least-once guarantee. The bolt writes the results of a batch and
the offsets of its messages in one transaction, and drops repeats by their offsets, also after a
crash. The spout stores, in the same database, the offset below which all trees are done, and starts
there: other bolts on its stream may be behind the results.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from sunshower.arguments import Instance, check_all, checked
from sunshower.errors import BadOffset, ConfigError, TopologyError
from sunshower.kafka.exactly_once.once_bolt import OnceBolt
from sunshower.kafka.options import ReaderContext
from sunshower.kafka.partitions.ports import Committed, Offsets, Partition
from sunshower.kafka.partitions.store_errors import using
from sunshower.records import RecordParts, Schema
from sunshower.secret import Secret, address
from sunshower.state.results import Results, Source
from sunshower.state.sqlite import SqliteFile
from sunshower.state.sqlite_results import SqliteResults
from sunshower.topologies.components import Context

FIELDS = ("topic", "partition", "offset")
Write = Callable[[Any, Sequence[Any]], None]  # called with the client's connection and records
_PLACE = Instance(
    (str, PurePath, Secret),
    'a SQLite file, such as "counts.db", or "postgresql://host/database"',
    may_be_empty=False,
)


@dataclass(frozen=True)
class _ResultsFile(SqliteFile):
    instead = 'give OffsetsWithResults a PostgreSQL, "postgresql://host/database"'


@dataclass(frozen=True)
class OffsetsWithResults:
    """A `store` for KafkaOptions, and the bolt that belongs to it. `place` is a SQLite file, or the
    address of a PostgreSQL: postgresql://…, or a Secret. All processes of the topology must have
    access to a file, and run on the machine where it was declared: elsewhere opening it raises
    ConfigError. A topic recreated under its old name needs another `id`."""

    place: str | PurePath | Secret
    id: str
    _file: _ResultsFile = field(init=False, repr=False, compare=False)  # if it is no PostgreSQL

    def __post_init__(self) -> None:
        check_all(self, {"place": _PLACE}, "OffsetsWithResults: ")
        place = self.place
        if isinstance(place, str) and place.startswith(("postgresql://", "postgres://")):
            place = address(place)
        elif not isinstance(place, Secret):
            file = _ResultsFile(place)
            object.__setattr__(self, "_file", file)
            place = file.file
        object.__setattr__(self, "place", place)

    def __call__(self, reader: ReaderContext) -> Offsets:
        with using(str(self.place)):
            return _ResultOffsets(self._open())

    @checked(ConfigError, "OffsetsWithResults.bolt")
    def bolt(self, write: Write, setup: str = "") -> ResultsBolt:
        """A bolt that calls `write(connection, records)` for each batch, never twice with the same
        message, within a transaction that `write` must not end. The connection is sqlite3's or
        psycopg's; a PostgreSQL must have written a batch within 10 s.

        Its records need the fields topic, partition and offset, and each message is one record.
        Group by the fields topic and partition, so that tasks do not compete for a partition.
        `setup` is SQL that creates the tables.
        """
        return ResultsBolt(self, write, setup)

    def _open(self) -> Results:
        if isinstance(self.place, Secret):
            from sunshower.state.postgres_results import PostgresResults

            return PostgresResults(self.place, self.id)
        return SqliteResults(self._file.path, self.id)


class ResultsBolt(OnceBolt):
    """The bolt that OffsetsWithResults.bolt returns. Its keys are topic, partition and offset."""

    def __init__(self, kept: OffsetsWithResults, write: Write, setup: str) -> None:
        self._kept, self._write, self._setup = kept, write, setup
        self._parts: RecordParts | None = None  # None until an input is declared
        self._done: dict[Source, tuple[Intervals, int, int]] = {}  # …, settled, version
        self._records: list[Any] = []  # the records of this batch

    def check_input(self, schema: Schema) -> None:
        """Raise an error for records without topic, partition and offset."""
        self._parts = self._parts or RecordParts("a bolt that keeps offsets with its results")
        self._parts.check(schema, FIELDS)

    def prepare(self, context: Context) -> None:
        if self._parts is None:
            raise TopologyError("declare an instance of this bolt, not a function that makes one")
        self._getters = [self._parts.getter(name) for name in FIELDS]
        self.begin()
        self._results = self._kept._open()
        self._results.setup(self._setup)
        self.load()

    def key_of(self, record: Any) -> Hashable:
        return tuple(get(record) for get in self._getters)

    def is_stored(self, key: tuple[str, int, int]) -> bool:
        topic, partition, offset = key
        source = topic, partition
        if source not in self._done:
            read = self._results.read(source)
            self._done[source] = Intervals(read.done), read.settled or 0, read.version
        done, settled, _ = self._done[source]
        return offset < settled or offset in done

    def accept(self, record: Any) -> None:
        self._records.append(record)

    def store(self, keys: Collection[tuple[str, int, int]]) -> None:
        if not keys:
            return
        fresh: dict[Source, list[int]] = {}
        for topic, partition, offset in keys:
            fresh.setdefault((topic, partition), []).append(offset)
        new = {}
        for source, offsets in fresh.items():
            done, settled, version = self._done[source]
            new[source] = done.from_on(settled).with_all(offsets), version
        self._results.write(
            {source: (done.pairs, version) for source, (done, version) in new.items()},
            lambda connection: self._write(connection, self._records),
        )
        for source, (done, version) in new.items():
            self._done[source] = done, self._results.read(source).settled or 0, version + 1
        self._records = []

    def load(self) -> None:
        """What is stored is read when it is needed."""
        self._done, self._records = {}, []

    def cleanup(self) -> None:
        self._results.close()


class _ResultOffsets(Offsets):
    """The spout commits `settled`, and starts there. What the bolt has written beyond it may belong
    to trees that are not done: another bolt of the topology may not have processed it."""

    keeps_writer = False
    by_message = True

    def __init__(self, results: Results) -> None:
        self._results = results
        self._lock = threading.Lock()  # the commit thread writes

    def read(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        found = {}
        with using("offsets with results"), self._lock:
            for partition in partitions:
                read = self._results.read(partition)
                if read.settled is not None:
                    found[partition] = Committed(read.settled)
        return found

    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        with using("offsets with results"), self._lock:
            for partition, committed in offsets.items():
                settled = self._results.read(partition).settled
                if settled is not None and committed.offset < settled:
                    raise BadOffset(
                        f"{partition} is read from {committed.offset}, and all below {settled} "
                        "was done: was the topic recreated? Then give another id"
                    )
            self._results.settle(
                {partition: committed.offset for partition, committed in offsets.items()}
            )

    def close(self) -> None:
        with self._lock:
            self._results.close()


class Intervals:
    """A set of offsets, as disjoint, non-adjacent [first, end) pairs."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self.pairs = [(first, end) for first, end in pairs]

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self.pairs, number, key=lambda pair: pair[0]) - 1
        return index >= 0 and number < self.pairs[index][1]

    def with_all(self, numbers: Iterable[int]) -> Intervals:
        """A set that contains `numbers`, too."""
        merged: list[tuple[int, int]] = []
        for first, end in sorted([*self.pairs, *((number, number + 1) for number in numbers)]):
            if merged and first <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((first, end))
        return Intervals(merged)

    def from_on(self, number: int) -> Intervals:
        """The members that are at least `number`."""
        return Intervals((max(first, number), end) for first, end in self.pairs if end > number)
