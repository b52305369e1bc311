"""Exactly once without batches: a consumer's offsets in the same transaction as its results.

    kept = OffsetsWithResults("counts.db", "words")
    KafkaSpout(…, fields=("topic", "partition", "offset", "value"),
               options=KafkaOptions(offsets=kept))
    kept.bolt(count, "CREATE TABLE IF NOT EXISTS counts (word TEXT PRIMARY KEY, number INTEGER)")

The spout is the usual one, at least once. The bolt writes what a batch comes to and the offsets
that it came from at once; a repeat is known by its offset, whoever has died, and dropped. The spout
begins where the results end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from sunshower.arguments import PATH, TEXT
from sunshower.errors import BadOffset, TopologyError
from sunshower.kafka.intervals import Intervals
from sunshower.kafka.options import Post
from sunshower.kafka.over_store import using
from sunshower.kafka.partitions import Committed, Offsets, Partition
from sunshower.records import Schema
from sunshower.stores.sqlite_results import SqliteResults
from sunshower.topologies.components import Bolt, Context

FIELDS = ("topic", "partition", "offset")
Write = Callable[[Any, Sequence[Any]], None]  # is handed a connection of sqlite3, and records


@dataclass(frozen=True)
class OffsetsWithResults:
    """An `offsets` for KafkaOptions, and the bolt that goes with it. All processes of the topology
    must see the file. A topic that is made anew under its old name needs another `id`."""

    file: str | PurePath
    id: str

    def __post_init__(self) -> None:
        PATH.check("OffsetsWithResults: file", self.file)
        TEXT.check("OffsetsWithResults: id", self.id)
        # Workers have a working directory of their own.
        object.__setattr__(self, "file", Path(self.file).absolute())

    def __call__(self, post: Post) -> Offsets:
        with using(str(self.file)):
            return _Kept(self._open())

    def bolt(self, write: Write, setup: str = "") -> ResultsBolt:
        """A bolt that is called as `write(connection, records)` with each batch, never with the
        same message twice, and inside of a transaction that it must not end.

        Its records have the fields topic, partition and offset, and each message is one record.
        Group by the fields topic and partition: then no task waits for another. `setup` is SQL
        that makes the tables.
        """
        return ResultsBolt(self, write, setup)

    def _open(self) -> SqliteResults:
        return SqliteResults(Path(self.file), self.id)


class ResultsBolt(Bolt[Any, None]):
    """See OffsetsWithResults.bolt."""

    def __init__(self, kept: OffsetsWithResults, write: Write, setup: str) -> None:
        self._kept, self._write, self._setup = kept, write, setup
        self._source_of: Callable[[Any], Any] | None = None
        self._done: dict[tuple[str, int], tuple[Intervals, int, int]] = {}  # …, settled, version
        self._fresh: dict[tuple[str, int], set[int]] = {}  # of this batch
        self._records: list[Any] = []  # likewise

    def check_input(self, schema: Schema) -> None:
        """Refuse records that do not say which message they are."""
        for field in FIELDS:
            schema.check_field(field, "a bolt that keeps offsets with its results")
        self._source_of = schema.key(FIELDS)

    def prepare(self, context: Context) -> None:
        if self._source_of is None:
            raise TopologyError("declare an instance of this bolt, not a function that makes one")
        self.repeats = 0
        self._results = self._kept._open()
        self._results.setup(self._setup)
        self._forget()

    def process(self, record: Any) -> None:
        """Keep a record for the end of the batch, unless its message was there before."""
        assert self._source_of
        topic, partition, offset = self._source_of(record)
        source = topic, partition
        if source not in self._done:
            read = self._results.read(source)
            self._done[source] = Intervals(read.done), read.settled or 0, read.version
        done, settled, _ = self._done[source]
        fresh = self._fresh.setdefault(source, set())
        if offset < settled or offset in done or offset in fresh:
            self.repeats += 1
        else:
            self._records.append(record)
            fresh.add(offset)

    def flush(self) -> None:
        """Write it all. If that cannot be done, nothing is written, and the batch fails."""
        records, known = self._records, self._done
        fresh = {source: offsets for source, offsets in self._fresh.items() if offsets}
        if not records:
            return
        self._forget()  # what has failed is read again
        new = {}
        for source, offsets in fresh.items():
            done, settled, version = known[source]
            new[source] = done.from_on(settled).with_all(offsets), settled, version
        self._results.write(
            {source: (done.pairs, version) for source, (done, _, version) in new.items()},
            lambda connection: self._write(connection, records),
        )
        for source, (done, _, version) in new.items():
            settled = self._results.read(source).settled or 0
            known[source] = done, settled, version + 1
        self._done = known

    def figures(self) -> dict[str, float]:
        """How many repeats were dropped."""
        return {"repeats": self.repeats}

    def cleanup(self) -> None:
        self._results.close()

    def _forget(self) -> None:
        self._done, self._records, self._fresh = {}, [], {}


class _Kept:
    """See the port Offsets: what is settled is known from the spout, the rest from the results."""

    keeps_writer = False

    def __init__(self, results: SqliteResults) -> None:
        self._results = results
        self._lock = threading.Lock()  # writes come from another thread

    def read(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        found = {}
        with using("offsets with results"), self._lock:
            for partition in partitions:
                read = self._results.read(partition)
                if read.settled is not None:
                    found[partition] = Committed(Intervals(read.done).after(read.settled))
        return found

    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        with using("offsets with results"), self._lock:
            for partition, committed in offsets.items():
                settled = self._results.read(partition).settled
                if settled is not None and committed.offset < settled:
                    raise BadOffset(
                        f"{partition} is read from {committed.offset}, and all below {settled} "
                        "was done: was the topic made anew? Then give another id"
                    )
            self._results.settle(
                {partition: committed.offset for partition, committed in offsets.items()}
            )

    def write_soon(self, offsets: Mapping[Partition, Committed]) -> None:
        return None

    def close(self) -> None:
        with self._lock:
            self._results.close()
