"""Exactly once by storing offsets in the transaction of the results, also after crashes."""

from __future__ import annotations

import pickle
import sqlite3
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Topology
from sunshower.dev.kafka import Kafka
from sunshower.errors import (
    BadOffset,
    ConfigError,
    RecordMismatch,
    StoreError,
    StoreUnreachable,
    UnknownField,
    WrongVersion,
)
from sunshower.kafka.exactly_once.offsets_with_results import (
    Intervals,
    OffsetsWithResults,
    ResultsBolt,
)
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.partitions.ports import Committed, Offsets, Partition
from sunshower.kafka.spout import KafkaSpout
from sunshower.records import Schema
from sunshower.secret import Secret
from sunshower.state import sqlite
from sunshower.topologies.components import Context
from tests.kafka.fakes import NewSpoutRig, message
from tests.kafka.groups import Topics
from tests.kafka.stage import running
from tests.kafka.topics import fill, new_topic

TABLE = "CREATE TABLE IF NOT EXISTS counts (word TEXT PRIMARY KEY, number INTEGER)"
CONTEXT = Context("words", "results", 1, 0, 1)


class Line(NamedTuple):
    topic: str
    partition: int
    offset: int
    word: str


def line(offset: int, partition: int = 0) -> Line:
    return Line("a", partition, offset, f"word {offset % 3}")


def count(db: Any, lines: Sequence[Line]) -> None:
    if any(line.word == "bad" for line in lines):
        raise ValueError("bad word")
    if any(line.word == "exit" for line in lines):
        raise SystemExit(1)
    mark = "?" if isinstance(db, sqlite3.Connection) else "%s"
    db.cursor().executemany(
        f"INSERT INTO counts VALUES ({mark}, 1)"
        " ON CONFLICT (word) DO UPDATE SET number = counts.number + 1",
        [(line.word,) for line in lines],
    )


def open_bolt(store: OffsetsWithResults) -> ResultsBolt:
    """The bolt, pickled and prepared as in a worker."""
    bolt = store.bolt(count, TABLE)
    bolt.check_input(Schema.of(Line))
    copy: ResultsBolt = pickle.loads(pickle.dumps(bolt))
    copy.prepare(CONTEXT)
    return copy


def process_batch(bolt: ResultsBolt, *lines: Line) -> None:
    for line in lines:
        bolt.process(line)
    bolt.flush()


def count_values(db: Any, records: Sequence[Any]) -> None:
    """Count the values of plain tuples (topic, partition, offset, value)."""
    count(db, [Line(*record[:3], record[3].decode()) for record in records])


def rows(store: OffsetsWithResults, sql: str) -> list[Any]:
    """The rows of a query by another program."""
    if isinstance(store.place, Secret):
        import psycopg

        with psycopg.connect(store.place.reveal()) as server:
            return server.execute(sql.encode()).fetchall()
    with sqlite3.connect(str(store.place)) as db:
        return db.execute(sql).fetchall()


def counts(store: OffsetsWithResults) -> dict[str, int]:
    return dict(rows(store, "SELECT word, number FROM counts"))


def offsets_of(store: OffsetsWithResults, topic_id: str = "") -> Offsets:
    reader: Any = SimpleNamespace(directory=Topics(a=2))
    reader.directory.ids = {"a": topic_id}
    return store(reader)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.servers)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> OffsetsWithResults:
    if request.param == "sqlite":
        return OffsetsWithResults(tmp_path / "counts.db", "words")
    results_store = OffsetsWithResults(request.getfixturevalue("postgres"), "words")
    for table in ("counts", "sunshower_offsets"):
        with suppress(StoreError):
            results_store._open().setup(f"TRUNCATE {table}")
    return results_store


def test_a_message_that_is_repeated_counts_once(store: OffsetsWithResults) -> None:
    bolt = open_bolt(store)
    process_batch(bolt, line(0), line(1), line(1), line(5))
    process_batch(bolt, line(1), line(2))
    process_batch(open_bolt(store), line(5), line(0), line(0, partition=1))
    assert counts(store) == {"word 0": 2, "word 1": 1, "word 2": 2}
    assert bolt.figures() == {"repeats": 2}


def test_a_zombie_writes_nothing(store: OffsetsWithResults) -> None:
    late = open_bolt(store)
    late.process(line(0))
    process_batch(open_bolt(store), line(0))
    with pytest.raises(WrongVersion, match="another task has written results"):
        late.flush()
    assert counts(store) == {"word 0": 1}
    process_batch(late, line(0), line(1))  # after the error it has read the stored offsets again
    assert counts(store) == {"word 0": 1, "word 1": 1}


def test_of_two_tasks_that_write_at_once_exactly_one_succeeds(store: OffsetsWithResults) -> None:
    bolts = [open_bolt(store), open_bolt(store)]
    with ThreadPoolExecutor(2) as pool:
        for offset in range(30):
            both = [line(offset), line(offset, partition=1)]
            for bolt, lines in zip(bolts, (both, both[::-1]), strict=True):
                for record in lines:
                    bolt.process(record)
            ends = [pool.submit(bolt.flush).exception for bolt in bolts]
            errors = [error for end in ends if (error := end(60)) is not None]
            assert [type(error) for error in errors] == [WrongVersion]
    assert counts(store) == dict.fromkeys(("word 0", "word 1", "word 2"), 20)


@pytest.mark.parametrize("word", ["bad", "exit"])
def test_results_that_cannot_be_written_leave_no_offset(
    store: OffsetsWithResults, word: str
) -> None:
    bolt = open_bolt(store)
    with pytest.raises((ValueError, SystemExit)):
        process_batch(bolt, line(0), Line("a", 0, 1, word))
    assert counts(store) == {}
    process_batch(bolt, line(0))
    assert counts(store) == {"word 0": 1}


def test_an_error_in_the_users_statement_is_raised_unchanged(store: OffsetsWithResults) -> None:
    def wrong(db: Any, _: Sequence[Line]) -> None:
        db.execute("INSERT INTO nowhere VALUES (1)")

    bolt = store.bolt(wrong)
    bolt.check_input(Schema.of(Line))
    bolt.prepare(CONTEXT)
    with pytest.raises(Exception, match="nowhere") as raised:
        process_batch(bolt, line(0))
    assert not isinstance(raised.value, StoreError)
    process_batch(open_bolt(store), line(0))
    assert counts(store) == {"word 0": 1}, "a message whose results failed is no repeat"


def test_the_address_of_a_server_is_shown_without_its_password() -> None:
    store = OffsetsWithResults("postgresql://me:secret@127.0.0.1:1/x", "words")
    assert "secret" not in repr(store)
    with pytest.raises(StoreUnreachable, match="the offsets of 'words'"):
        open_bolt(store)


def test_results_in_a_file_are_refused_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bolt = OffsetsWithResults(tmp_path / "counts.db", "words").bolt(count)
    bolt.check_input(Schema.of(Line))
    monkeypatch.setattr(sqlite, "machine", lambda: "another boot")
    with pytest.raises(ConfigError, match=r"counts\.db is a file .* give .* a PostgreSQL, \"postg"):
        bolt.prepare(CONTEXT)


def test_a_reader_begins_where_all_trees_are_done_whatever_the_results_cover(
    store: OffsetsWithResults,
) -> None:
    offsets = offsets_of(store)
    first, other = Partition("a", 0), Partition("a", 1)
    assert offsets.read([first, other]) == {}
    process_batch(open_bolt(store), *map(line, [0, 1, 2, 4, 7]))
    assert offsets.read([first, other]) == {}  # no reader has stored that it began at 0
    offsets.write({first: Committed(1)})
    assert offsets.read([first, other]) == {first: Committed(1)}
    offsets.write({first: Committed(5)})
    assert offsets.read([first]) == {first: Committed(5)}


def test_intervals_below_the_settled_offset_are_removed(store: OffsetsWithResults) -> None:
    bolt, offsets = open_bolt(store), offsets_of(store)
    for start in range(0, 1000, 10):  # each tenth offset is missing, like a transaction marker
        process_batch(bolt, *map(line, range(start, start + 9)))
        offsets.write({Partition("a", 0): Committed(start + 10)})
    intervals = rows(store, "SELECT settled, done FROM sunshower_offsets")
    assert intervals == [(1000, "[[980, 989], [990, 999]]")]
    process_batch(bolt, line(3), line(995))
    assert sum(counts(store).values()) == 900


def test_a_topic_that_was_created_again_is_an_error(store: OffsetsWithResults) -> None:
    offsets = offsets_of(store)
    offsets.write({Partition("a", 0): Committed(500)})
    with pytest.raises(BadOffset, match=r"a\[0\] is read from 0, and all below 500 was done"):
        offsets.write({Partition("a", 0): Committed(0)})


def test_records_without_topic_partition_and_offset_are_refused(store: OffsetsWithResults) -> None:
    with pytest.raises(UnknownField, match="offset"):
        store.bolt(count).check_input(Schema(("topic", "partition", "value")))


def test_plain_tuples_with_the_message_fields_at_different_positions_are_refused(
    store: OffsetsWithResults,
) -> None:
    bolt = store.bolt(count)
    bolt.check_input(Schema(("topic", "partition", "offset", "value")))
    with pytest.raises(RecordMismatch, match="'topic' at different positions"):
        bolt.check_input(Schema(("value", "topic", "partition", "offset")))


def test_a_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no database, but a long text " * 100)
    with pytest.raises(StoreError, match="file is not a database"):
        open_bolt(OffsetsWithResults(tmp_path / "file", "words"))


def test_a_kafka_spout_emits_again_what_only_the_results_bolt_has_processed(
    store: OffsetsWithResults, new_spout_rig: NewSpoutRig
) -> None:
    def start_spout() -> tuple[Any, list[tuple[int, int]]]:
        rig = new_spout_rig((0, 100), offsets=offsets_of(store))
        rig.open()
        rig.client.waiting = [message(at) for at in range(rig.client.reads[Partition("a", 0)], 10)]
        return rig, rig.poll()

    rig, emitted = start_spout()
    assert [offset for _, offset in emitted] == [*range(10)]
    process_batch(open_bolt(store), *map(line, range(6)))
    rig.spout.acked(
        np.array([rig.spout._reader.places[Partition("a", 0)].number(at) for at in (0, 1, 3)])
    )
    rig.spout.close()  # the trees of 2 and of 4 on are not done: another sink may be behind
    assert [offset for _, offset in start_spout()[1]] == [*range(2, 10)]
    bolt = open_bolt(store)
    process_batch(bolt, *map(line, range(2, 10)))
    assert bolt.figures() == {"repeats": 4}
    assert sum(counts(store).values()) == 10


def test_a_message_of_several_records_is_unreadable_and_none_of_them_is_dropped(
    store: OffsetsWithResults, new_spout_rig: NewSpoutRig
) -> None:
    rig = new_spout_rig((0, 9), offsets=offsets_of(store))
    rig.spout.reads = (*rig.spout.reads[:2], lambda record: [record, record][record.offset :], ())
    rig.open()
    rig.client.waiting = [message(0), message(1), message(2)]
    polled = rig.spout.poll(10)
    assert polled is not None
    assert [record.offset for record in polled.records] == [1]
    (unreadable,) = polled.unreadable
    assert unreadable.record["offset"] == 0
    assert "OffsetsWithResults stores results by message" in unreadable.reason


def test_each_message_counts_once_whatever_happens(store: OffsetsWithResults) -> None:
    for seed in range(15):
        random = Random(seed)
        store._open().setup("DROP TABLE IF EXISTS counts")
        store = OffsetsWithResults(store.place, f"words {seed}")
        offsets, bolts = offsets_of(store), [open_bolt(store), open_bolt(store)]
        open_lines = [line(offset, number) for offset in range(20) for number in range(2)]
        wanted = dict.fromkeys((f"word {n}" for n in range(3)), 0)
        for open_line in open_lines:
            wanted[open_line.word] += 1
        acked: dict[int, set[int]] = {0: set(), 1: set()}
        while open_lines:
            sample = random.sample(open_lines, min(len(open_lines), random.randrange(1, 8)))
            bolt = random.choice(bolts)
            try:
                for taken in sample:
                    bolt.process(taken)
                if random.random() < 0.2:  # the task dies before the flush, or flushes later
                    bolts[bolts.index(bolt)] = open_bolt(store)
                    bolts = [*bolts[:2], bolt][: random.choice([2, 3])]
                    continue
                bolt.flush()
            except StoreError:
                continue
            if random.random() < 0.7:  # else the acks are lost
                open_lines = [open_line for open_line in open_lines if open_line not in sample]
                for taken in sample:
                    acked[taken.partition].add(taken.offset)
                for number, done in acked.items():
                    settled = next(at for at in range(21) if at not in done)
                    offsets.write({Partition("a", number): Committed(settled)})
        assert counts(store) == wanted, f"seed {seed}"


def test_on_kafka_each_message_counts_once_beside_a_zombie(
    store: OffsetsWithResults, kafka: Kafka
) -> None:
    """A worker is replaced, and continues for a moment beside its successor."""
    topic = new_topic(kafka.bootstrap, partitions=2)
    wanted = Counter({f"word {number % 7}": 0 for number in range(7)})

    def write(numbers: range) -> None:
        values = [f"word {number % 7}".encode() for number in numbers]
        for partition in range(2):
            fill(kafka.bootstrap, topic, values, partition)
            wanted.update(value.decode() for value in values)

    def new_topology() -> Topology:
        spout = KafkaSpout(
            {"bootstrap.servers": kafka.bootstrap, "group.id": topic},
            topics=[topic],
            fields=("topic", "partition", "offset", "value"),
            options=KafkaOptions(store=store, commit_s=0.05),
        )
        topology = Topology("kafka", workers=1)
        lines = topology.spout("in", spout).fields("topic", "partition")
        lines.bolt("results", store.bolt(count_values, TABLE), parallelism=2)
        return topology

    def done() -> int:
        return sum(counts(store).values())

    store._open().setup(TABLE)
    write(range(2_000))
    with running(new_topology()) as zombie:
        zombie.until(lambda: done() > 500)
        with running(new_topology()) as successor:
            write(range(2_000, 2_500))
            successor.until(lambda: done() > 3_000)
            zombie.step_for(0.3)
            successor.until(lambda: done() >= wanted.total())
            successor.step_for(0.2)
            zombie.step_for(0.2)
    assert counts(store) == wanted


@given(st.lists(st.sets(st.integers(0, 40))), st.integers(0, 40))
def test_intervals_contain_what_a_set_contains(batches: list[set[int]], below: int) -> None:
    model: set[int] = set()
    intervals = Intervals()
    for numbers in batches:
        intervals, model = intervals.with_all(numbers), model | numbers
        assert {number for number in range(42) if number in intervals} == model
        assert all(end < first for (_, end), (first, _) in pairwise(intervals.pairs))
    left = intervals.from_on(below)
    assert {number for number in range(42) if number in left} == {n for n in model if n >= below}
