"""Exactly once without batches: stores offsets and results in the same transaction (docs/KAFKA.md).

The spout is a KafkaSpout with at-least-once guarantee. The bolt writes the results of a batch and
the offsets of its messages in one transaction, and drops repeats by their offsets, also after a
crash. The spout stores, in the same database, the offset below which all trees are done, and starts
there: other bolts on its stream may be behind the results.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from sunshower.arguments import Instance, check_all, checked
from sunshower.errors import BadOffset, ConfigError, TopologyError
from sunshower.kafka.exactly_once.deduplicate import OnceBolt
from sunshower.kafka.options import ReaderContext
from sunshower.kafka.partitions.ports import Committed, Offsets, Partition, using
from sunshower.records import Schema
from sunshower.secret import Secret, address
from sunshower.state.results import Read, Results, Source, SqliteResults, topic_key
from sunshower.state.sqlite import SqliteFile
from sunshower.topologies.components import Context
from sunshower.topologies.record_parts import RecordParts

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
    ConfigError. If records have the field topic_id, a topic that is created again under its old
    name is another topic; without it the spout raises BadOffset for one."""

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
            return _ResultOffsets(self._open(), reader.directory.topic_ids)

    @checked(ConfigError, "OffsetsWithResults.bolt")
    def bolt(self, write: Write, setup: str = "") -> ResultsBolt:
        """A bolt that calls `write(connection, records)` for each batch, never twice with the same
        message, within a transaction that `write` must not end. The connection is sqlite3's or
        psycopg's; a PostgreSQL must have written a batch within 10 s.

        Its records need the fields topic, partition and offset, and each message is one record.
        With topic_id as well, offsets of a topic that is created again are no repeats.
        Group by the fields topic and partition, so that tasks do not compete for a partition.
        `setup` is SQL that creates the tables.
        """
        return ResultsBolt(self, write, setup)

    def _open(self) -> Results:
        if isinstance(self.place, Secret):
            from sunshower.state.results import PostgresResults

            return PostgresResults(self.place, self.id)
        return SqliteResults(self._file.path, self.id)


class ResultsBolt(OnceBolt):
    """The bolt that OffsetsWithResults.bolt returns. Its keys are topic, id of the topic (if
    records have it), partition and offset."""

    def __init__(self, options: OffsetsWithResults, write: Write, setup: str) -> None:
        self._kept, self._write, self._setup = options, write, setup
        self._parts: RecordParts | None = None  # None until an input is declared
        self._has_topic_id: bool | None = None  # of its inputs
        self._done: dict[Source, tuple[Intervals, Read]] = {}
        self._records: list[Any] = []  # the records of this batch

    def check_input(self, schema: Schema) -> None:
        self._parts = self._parts or RecordParts("a bolt that keeps offsets with its results")
        self._parts.check(schema, FIELDS)
        has_topic_id = "topic_id" in schema.fields
        if self._has_topic_id not in (None, has_topic_id):
            raise TopologyError(
                "of the inputs of a bolt that keeps offsets with its results, one has the field "
                "topic_id and another has not: give all of them the field"
            )
        self._has_topic_id = has_topic_id
        if has_topic_id:
            self._parts.check(schema, ["topic_id"])

    def prepare(self, context: Context) -> None:
        if self._parts is None:
            raise TopologyError("declare an instance of this bolt, not a function that makes one")
        names = ("topic", "topic_id", *FIELDS[1:]) if self._has_topic_id else FIELDS
        self._getters = [self._parts.getter(name) for name in names]
        self.begin()
        self._results = self._kept._open()
        self._results.setup(self._setup)
        self.load()

    def key_of(self, record: Any) -> Hashable:
        """The key (row of the topic, partition, offset)."""
        if self._has_topic_id:
            topic, id, *place = (get(record) for get in self._getters)
            return (topic_key(topic, id), *place)
        return tuple(get(record) for get in self._getters)

    def is_stored(self, key: tuple[str, int, int]) -> bool:
        topic, partition, offset = key
        source = topic, partition
        if source not in self._done:
            name, _, id = topic.partition("#")
            read = self._results.read_of_topic(name, id, partition)
            self._done[source] = Intervals(read.done), read
        done, read = self._done[source]
        return offset < (read.settled or 0) or offset in done

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
            done, read = self._done[source]
            new[source] = done.from_on(read.settled or 0).with_all(offsets), read
        self._results.write(
            {source: (done.pairs, read.version) for source, (done, read) in new.items()},
            lambda connection: self._write(connection, self._records),
            {source: read.moved_from for source, (_, read) in new.items() if read.moved_from},
        )
        for source, (done, read) in new.items():
            settled = self._results.read(source).settled
            version = 1 if read.moved_from else read.version + 1
            self._done[source] = done, Read(settled, [], version)
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

    def __init__(
        self, results: Results, ask: Callable[[Collection[str]], Mapping[str, str]]
    ) -> None:
        self._results = results
        self._ask = ask  # for the ids of topics
        self._lock = threading.Lock()  # the commit thread writes

    def read(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        committed = {}
        ids = self._ask({partition.topic for partition in partitions})
        with using("offsets with results"), self._lock:
            for partition in partitions:
                id = ids.get(partition.topic, "")
                settled = self._settled(partition, id)
                if settled is not None:
                    metadata = json.dumps({"topicId": id}) if id else ""
                    committed[partition] = Committed(settled, metadata)
        return committed

    def _settled(self, partition: Partition, id: str) -> int | None:
        """The stored offset of the topic with this id. Raises BadOffset if results of a former
        topic are stored without its id: they could not be told from those of the present one."""
        key = topic_key(partition.topic, id)
        rows = self._results.siblings(*partition)
        if key in rows or rows.keys() <= {partition.topic}:
            return self._results.read(
                (key if key in rows else partition.topic, partition.number)
            ).settled
        if rows.get(partition.topic):
            raise BadOffset(
                f"topic {partition.topic!r} was deleted and created again, and the results of the "
                f"former one are stored without its id: emit the field too, fields=(…, "
                '"topic_id", …), and give another id'
            )
        return None

    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        with using("offsets with results"), self._lock:
            rows = {
                (topic_key(partition.topic, committed.topic_id), partition.number): committed.offset
                for partition, committed in offsets.items()
            }
            for (partition, committed), source in zip(offsets.items(), rows, strict=True):
                settled = self._results.read(source).settled
                if settled is not None and committed.offset < settled:
                    raise BadOffset(
                        f"{partition} is read from {committed.offset}, and all below {settled} "
                        "was done: was the topic recreated? Then give another id"
                    )
            self._results.settle(rows)

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
