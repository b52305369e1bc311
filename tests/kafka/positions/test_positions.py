"""Positions in topics that are cut, deleted and created again, and of several sinks."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from sunshower.clock import ManualClock
from sunshower.errors import BadOffset, KafkaUnreachable, UnknownTopic
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.exactly_once.offsets_with_results import OffsetsWithResults
from sunshower.kafka.options import Guarantee, KafkaOptions
from sunshower.kafka.partitions.ports import Committed, Partition
from sunshower.kafka.spout import KafkaSpout
from sunshower.kafka.zookeeper.options import PlainLayout, StoredOffsets, StormLayout
from sunshower.records import Schema
from sunshower.state.tree import MemoryForest, MemoryTree
from sunshower.topologies.components import Context
from tests.kafka.fakes import SETTINGS, AtOnce, FakeOffsets
from tests.kafka.positions.broker import Broker, BrokerClient
from tests.seeds import seeds

FIELDS = ("topic", "topic_id", "partition", "offset", "value")
TABLE = "CREATE TABLE IF NOT EXISTS got (topic_id TEXT, partition INTEGER, offset INTEGER)"
A0 = Partition("a", 0)


def write(db: Any, records: Sequence[Any]) -> None:
    rows = [(record[1], record[2], record[3]) for record in records]
    db.executemany("INSERT INTO got VALUES (?, ?, ?)", rows)


class Job:
    """A KafkaSpout and its sinks, each of which has a queue. The sinks survive a kill."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        broker: Broker,
        store: Callable[[Any], Any] | None = None,
        *,
        sinks: int = 1,
        results: OffsetsWithResults | None = None,
        **options: Any,
    ) -> None:
        self.broker, self.clock = broker, ManualClock()
        self.spout_options = options
        offsets = FakeOffsets()
        self.store = store or (lambda _: offsets)
        self.results = results
        self.seen: list[list[tuple[Any, ...]]] = [[] for _ in range(sinks)]
        self.letters: list[dict[str, Any]] = []
        for module in ("subscription", "partition_reader"):
            patch.setattr(f"sunshower.kafka.consuming.{module}.ThreadPoolExecutor", AtOnce)
        patch.setattr("sunshower.kafka.spout.Consumer", lambda _: BrokerClient(self.broker))
        self.start()

    def start(self) -> None:
        """Start the spout's process, or restart it after a kill."""
        source = {"topics": ["a"]} | self.spout_options.pop("source", {})
        usual: dict[str, Any] = {"directory": lambda _: self.broker, "store": self.store}
        options = KafkaOptions(**usual | self.spout_options)
        self.spout = KafkaSpout(SETTINGS, fields=FIELDS, options=options, deployment="d", **source)
        self.spout.open(Context("t", "in", 0, 0, 1, clock=self.clock))
        self.queues: list[list[tuple[int, Any]]] = [[] for _ in self.seen]
        self.open: dict[int, int] = {}  # message → the sinks that have not processed it
        if self.results is not None:
            self.bolt = self.results.bolt(write, TABLE)
            self.bolt.check_input(Schema(FIELDS))
            self.bolt.prepare(Context("t", "results", 1, 0, 1))

    def poll(self, limit: int = 100) -> list[Any]:
        self.clock.advance(1.0)
        polled = self.spout.poll(limit)
        if polled is None:
            return []
        for unreadable_record in polled.unreadable:
            self.letters.append(dict(unreadable_record.record))
            self.spout.acked(np.array([unreadable_record.number]))
        for number, record in zip(polled.numbers.tolist(), polled.records, strict=True):
            self.open[number] = len(self.seen)
            for queue in self.queues:
                queue.append((number, record))
        return [*polled.records]

    def process(self, sink: int, count: int = 1000) -> None:
        """Let a sink process the next `count` records of its queue."""
        done, self.queues[sink] = self.queues[sink][:count], self.queues[sink][count:]
        if sink == 0 and self.results is not None:
            for _, record in done:
                self.bolt.process(record)
            self.bolt.flush()
        for number, record in done:
            self.seen[sink].append(record)
            self.open[number] -= 1
            if not self.open[number]:
                self.spout.acked(np.array([number]))

    def kill(self) -> None:
        self.start()

    def recreate(self, *values: bytes, partitions: int = 1) -> None:
        self.broker.delete("a")
        self.broker.create("a", partitions)
        self.broker.fill("a", 0, values)

    def run(self, polls: int = 4) -> None:
        """Read and process all there is, and commit."""
        for _ in range(polls):
            self.poll()
            for sink in range(len(self.seen)):
                self.process(sink)

    def values(self, sink: int = 0) -> list[bytes]:
        return [record[-1] for record in self.seen[sink]]


def words(first: int, end: int) -> list[bytes]:
    return [str(number).encode() for number in range(first, end)]


def new_broker(**options: Any) -> Broker:
    broker = Broker(**options)
    broker.create("a")
    broker.fill("a", 0, words(0, 20))
    return broker


STORES: dict[str, Callable[[], Callable[[Any], Any]]] = {}


def store(name: str) -> Callable[[], Callable[[Any], Any]]:
    def make() -> Callable[[Any], Any]:
        forest, offsets = MemoryForest(), FakeOffsets()
        layouts = {"plain": PlainLayout("g"), "storm": StormLayout("/s", "i", "t-d", "t")}
        if name == "group":
            return lambda _: offsets
        return lambda _: StoredOffsets(MemoryTree(forest), layouts[name])

    return make


each_store = pytest.mark.parametrize("name", ["group", "plain", "storm"])
NEW = words(1000, 1050)


@each_store
@pytest.mark.parametrize("new", [NEW, NEW[:5]], ids=["longer", "shorter"])
@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "running"])
def test_all_records_of_a_topic_that_is_created_again_are_read(
    monkeypatch: pytest.MonkeyPatch, name: str, new: list[bytes], is_stopped: bool
) -> None:
    job = Job(monkeypatch, new_broker(), store(name)())
    job.run()
    job.recreate(*new)
    if is_stopped:
        job.kill()
    job.run()
    assert {*job.values()} == {*words(0, 20), *new}
    job.kill()
    job.broker.fill("a", 0, [b"last"])
    job.run()
    assert job.values()[-1] == b"last"
    assert Counter(job.values())[new[-1]] < 3, "the new topic's position was stored"


@pytest.mark.parametrize("first", [*StartPosition])
def test_a_topic_that_is_created_again_begins_by_the_declared_reset_and_says_what_it_passes_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, first: StartPosition
) -> None:
    job = Job(monkeypatch, new_broker(), first=StartPosition.EARLIEST)
    job.run()
    job.spout_options["first"] = first
    job.kill()
    job.recreate(*NEW)
    if first is StartPosition.NONE:
        with pytest.raises(BadOffset, match=r"a\[0\]: its topic was deleted and created again"):
            job.run()
        return
    job.run()
    assert (
        "a[0]: its topic was deleted and created again; the former one was read up" in caplog.text
    )
    assert job.spout.figures()["recreated"] == 1
    if first.from_end:
        assert job.letters == [{"topic": "a", "partition": 0, "from": 0, "to": 49}]
    else:
        assert {*NEW} <= {*job.values()}
        assert job.letters == []


def test_a_deleted_topic_is_an_outage_until_it_is_created_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch, new_broker(), refresh_s=3600.0)
    job.run()
    job.broker.delete("a")
    with pytest.raises(KafkaUnreachable, match="waits until it is created again"):
        job.run()
    job.broker.create("a", 3)
    job.broker.fill("a", 2, NEW)
    job.run(6)
    assert {*NEW} <= {*job.values()}
    with pytest.raises(UnknownTopic):
        Job(monkeypatch, Broker())


def test_an_error_of_a_partition_that_the_client_only_reports_lets_partitions_be_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch, new_broker(), refresh_s=3600.0)
    job.run()
    log = job.broker.topics_of["a"].logs
    log.append(type(log[0])(0, NEW))
    job.run()
    assert not {*NEW} & {*job.values()}, "it is not time to look for partitions"
    job.spout._consumer.has_partition_error = True  # type: ignore[attr-defined]
    job.run()
    assert {*NEW} <= {*job.values()}


def test_at_most_once_no_record_of_a_topic_that_is_created_again_is_emitted_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch, new_broker(), guarantee=Guarantee.AT_MOST_ONCE)
    job.run()
    job.recreate(*NEW)
    job.run()
    assert sorted(job.values()) == sorted(words(0, 20) + NEW)


def test_a_new_topic_that_is_shorter_is_read_to_its_first_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch, new_broker())
    assert not job.spout.has_read_first()
    job.recreate(*NEW[:5])
    job.run()
    assert job.spout.has_read_first()


def test_open_records_of_the_former_topic_are_still_processed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch, new_broker())
    number = [*range(20)]
    job.poll()
    job.recreate(*NEW)
    polled = job.spout.poll(100)
    job.run()
    assert polled is None or not polled.gone
    assert {*job.values()} == {*words(0, 20), *NEW}
    assert len(number) == 20


def test_failed_records_of_the_former_topic_that_are_not_in_memory_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch, new_broker(), refetch=True)
    job.poll()
    failed = [*job.open][3:5]
    job.recreate(*NEW)
    job.run()
    polled = job.spout.refetch(np.array(failed), 10)
    assert [unreadable_record.record["offset"] for unreadable_record in polled.unreadable] == [3, 4]
    assert "created again" in polled.unreadable[0].reason


def test_positions_without_an_id_are_those_of_the_topic_at_the_first_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offsets = FakeOffsets()
    offsets.committed[A0] = Committed(15, '{"topologyId": "t-d", "taskId": 0}')
    job = Job(monkeypatch, new_broker(), lambda _: offsets)
    job.run()
    assert job.values() == words(15, 20)
    assert json.loads(offsets.committed[A0].metadata) == {
        "topologyId": "t-d",
        "taskId": 0,
        "topicId": "id-1",
    }


def test_without_ids_a_lower_leader_epoch_is_another_topic_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = new_broker(gives_ids=False)
    broker.topics_of["a"].epoch = 7
    job = Job(monkeypatch, broker)
    job.run()
    job.recreate(*NEW)
    job.run()
    assert {*NEW} <= {*job.values()}
    assert caplog.text.count("the brokers give no ids of topics") == 1
    broker.topics_of["a"].epoch = 5
    broker.fill("a", 0, [b"later"])
    job.run()
    job.recreate(*words(2000, 2100))
    job.kill()
    job.run()
    assert {*words(2000, 2100)} <= {*job.values()}, "the epoch is stored with the offset"


def test_results_of_a_topic_that_is_created_again_are_no_repeats_and_none_counts_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = OffsetsWithResults(tmp_path / "results.db", "id")
    job = Job(monkeypatch, new_broker(), database, results=database)
    job.run()
    job.recreate(*NEW)
    job.run()
    job.recreate(*NEW[:7])
    job.kill()
    job.run()
    with sqlite3.connect(database.place) as db:
        rows = Counter(db.execute("SELECT * FROM got").fetchall())
    assert rows == Counter(
        (f"id-{topic}", 0, offset) for topic, count in ((1, 20), (2, 50), (3, 7))
        for offset in range(count)
    )  # fmt: skip


def test_results_stored_without_the_id_of_the_topic_are_continued_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = OffsetsWithResults(tmp_path / "results.db", "id")
    results = database._open()
    results.setup(TABLE)
    results.write({("a", 0): ([(0, 12)], 0)}, lambda _: None)
    results.settle({("a", 0): 9})
    job = Job(monkeypatch, new_broker(), database, results=database)
    job.run()
    assert job.values() == words(9, 20)
    with sqlite3.connect(database.place) as db:
        got = [row[2] for row in db.execute("SELECT * FROM got ORDER BY offset")]
        assert db.execute("SELECT topic FROM sunshower_offsets").fetchall() == [("a#id-1",)]
    assert got == [*range(12, 20)]


def test_a_topic_created_again_is_an_error_for_results_stored_without_its_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = OffsetsWithResults(tmp_path / "results.db", "id")
    job = Job(monkeypatch, new_broker(), database)
    job.run()
    database._open().write({("a", 0): ([(0, 20)], 0)}, lambda _: None)
    job.recreate(*NEW)
    for act in (job.run, job.run, job.kill):
        with pytest.raises(BadOffset, match=r"topic 'a' was deleted and created again.*topic_id"):
            act()


@seeds(1000)
def test_no_sink_misses_a_record_whatever_happens_to_topic_and_tasks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    draw = Random(seed)
    kind = draw.choice(["group", "plain", "storm", "results", "results"])
    database = OffsetsWithResults(tmp_path / "results.db", "id") if kind == "results" else None
    partitions, sinks = draw.randint(1, 3), draw.randint(1, 3)
    broker = Broker()
    broker.create("a", partitions)
    first = draw.choice([StartPosition.EARLIEST, StartPosition.UNCOMMITTED_EARLIEST])
    job = Job(
        *(monkeypatch, broker, database or store(kind)()),
        sinks=sinks,
        results=database,
        first=first,
    )
    number = 0
    for _ in range(draw.randint(20, 80)):
        exists = "a" in broker.topics_of
        match draw.choice(["fill", "fill", "poll", "poll", "process", "process", "cut", "other"]):
            case "fill" if exists:
                count = draw.randint(1, 20)
                at = draw.randrange(len(broker.topics_of["a"].logs))
                broker.fill("a", at, words(number, number + count))
                number += count
            case "poll":
                with suppress(KafkaUnreachable):
                    job.poll(draw.choice([0, 1, 5, 50]))
            case "process":
                job.process(draw.randrange(sinks), draw.randint(1, 10))
            case "cut" if exists and draw.random() < 0.3:
                at = draw.randrange(len(broker.topics_of["a"].logs))
                log = broker.topics_of["a"].logs[at]
                broker.cut("a", at, draw.randint(log.first, log.end))
            case "other":
                match draw.choice(["kill", "delete", "recreate"]):
                    case "kill" if exists:
                        job.kill()
                    case "delete" if exists:
                        broker.delete("a")
                    case "recreate":
                        broker.topics_of.pop("a", None)
                        broker.create("a", draw.randint(1, 3))
    if "a" not in broker.topics_of:
        broker.create("a")
    job.run(30)
    check_all_read(job, f"seed {seed}")
    if database is not None:
        with sqlite3.connect(database.place) as db:
            rows = Counter(db.execute("SELECT * FROM got").fetchall())
        assert max(rows.values(), default=1) == 1, f"seed {seed}: {rows.most_common(3)}"
        wanted = {(topic, n, at) for topic, n, at, _ in retained(broker)} - passed_over(job)
        assert wanted <= {*rows}, f"seed {seed}"


def retained(broker: Broker) -> set[tuple[str, int, int, bytes]]:
    """(id of the topic, partition, offset, value) of each record that there is."""
    topic = broker.topics_of["a"]
    return {
        (topic.id, n, log.first + at, value)
        for n, log in enumerate(topic.logs)
        for at, value in enumerate(log.values)
    }


def passed_over(job: Job) -> set[tuple[str, int, int]]:
    """The places that letters name, as if they were of the present topic."""
    id = job.broker.topics_of["a"].id
    return {
        (id, letter["partition"], offset)
        for letter in job.letters
        for offset in range(letter["from"], letter["to"] + 1)
    }


def check_all_read(job: Job, what: str) -> None:
    missing = passed_over(job)
    for sink, seen in enumerate(job.seen):
        got = {(record[1], record[2], record[3], record[4]) for record in seen}
        lost = {record for record in retained(job.broker) - got if record[:3] not in missing}
        by_value = {record[4] for record in seen}
        lost = {record for record in lost if record[3] not in by_value}
        assert not lost, f"{what}: sink {sink} misses {sorted(lost)[:5]}"
