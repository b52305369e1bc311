"""A program of batches from Kafka to Kafka changes while it runs: each message counts once.

It reads events, some twice and some broken, drops those whose id was there before, and counts the
others by key. On Ray, it gets other numbers of tasks and new code, and is ended and resumed.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sunshower import KeyState, Topology
from sunshower.dev.kafka import Kafka
from sunshower.kafka import BatchOptions, KafkaTransactional, Received, TransactionalKafkaBolt
from sunshower.state import SqliteState
from sunshower.trident import Bounds, InSqlite, batches, count
from tests.guarantee.deaths import RECOVERY_S
from tests.kafka.topics import fill, new_topic, read_all

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster
    from sunshower.actors.run import RayRun

TOTAL = 4_000


class Message(NamedTuple):
    value: bytes


class Event(NamedTuple):
    id: int
    key: str


class Total(NamedTuple):
    key: str
    count: int


def message(received: Received) -> Message:
    return Message(received.value or b"")


def parse(message: Message) -> Iterator[Event]:
    try:
        found = json.loads(message.value)
        yield Event(int(found["id"]), found["key"])
    except (ValueError, KeyError, TypeError):
        return


def parse_later(message: Message) -> Iterator[Event]:
    """New code."""
    yield from parse(message)


def first_only(event: Event, seen: KeyState[bool]) -> Iterator[Event]:
    if not seen.value:
        seen.value = True
        yield event


def messages() -> list[bytes]:
    draw, found = Random(1), list[bytes]()
    for number in range(TOTAL):
        body = json.dumps({"id": number, "key": f"k{number % 10}"}).encode()
        found += [body] * (2 if number % 20 == 3 else 1)
        if number % 50 == 7:
            found.append(draw.choice([b"not json", b'{"id": "x"}', b"\xff\xfe"]))
    return found


class Program:
    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.settings, self.folder = {"bootstrap.servers": bootstrap}, folder
        self.source, self.out = new_topic(bootstrap), new_topic(bootstrap)

    def topology(self, first: int = 1, counts: int = 1, *, is_new: bool = False) -> Topology:
        """`first`, `counts`: the numbers of tasks of the two states."""
        topology, folder = Topology("dedup-count", workers=2), self.folder
        given = {**self.settings, "group.id": self.source}
        options = BatchOptions(bounds=Bounds(records=60))
        spout = KafkaTransactional(
            given, topics=[self.source], translate=message, emits=Message, options=options
        )
        store = InSqlite(folder / "batches.db")
        rows = batches(topology, "events", spout, store=store, max_batches=2, interval_s=0.1)
        events = rows.flat_map(parse_later if is_new else parse)
        seen, counted = SqliteState(folder / "seen.db"), SqliteState(folder / "counts.db")
        unique = events.group_by("id").process(first_only, state=seen, parallelism=first)
        totals = unique.group_by("key").aggregate(
            count(), state=counted, fields=Total, name="counts", parallelism=counts
        )
        out = TransactionalKafkaBolt(self.settings, self.out, key="key", transactional_id=self.out)
        totals.records("out").shuffle().bolt("to-counts", out)
        return topology

    def count(self) -> int:
        return sum(dict(SqliteState(self.folder / "counts.db").items()).values())


def wait_for(run: RayRun, program: Program, share: float) -> None:
    end_s = time.monotonic() + RECOVERY_S
    while program.count() < share * TOTAL:
        assert time.monotonic() < end_s, program.count()
        run.wait(0.05)


@pytest.mark.long
@pytest.mark.servers
def test_each_message_counts_once_while_a_program_gets_other_tasks_and_new_code(
    ray_cluster: RayCluster, kafka: Kafka, tmp_path: Path
) -> None:
    program = Program(kafka.bootstrap, tmp_path)
    fill(kafka.bootstrap, program.source, messages())
    run: RayRun = ray_cluster.submit(program.topology().graph())
    try:
        wait_for(run, program, 0.1)
        run.rebalance(tasks={"first_only": 2})
        assert len(run.plan.tasks_of("first_only")) == 2
        wait_for(run, program, 0.25)
        run.rebalance(tasks={"first_only": 3, "counts": 2})
        run.kill_worker(run.plan.workers[0])
        wait_for(run, program, 0.4)
        run.upgrade(program.topology(1, 3, is_new=True).graph())
        wait_for(run, program, 0.6)
        savepoint = run.keep()
        run.kill()
        run = ray_cluster.submit(program.topology(2).graph(), resume=savepoint)
        wait_for(run, program, 0.8)
        run.rebalance(tasks={"first_only": 1})
        wait_for(run, program, 1.0)
    finally:
        run.stop()
    expected = {f"k{number}": TOTAL // 10 for number in range(10)}
    assert dict(SqliteState(tmp_path / "counts.db").items()) == expected
    last = dict[str, int]()
    totals = read_all(kafka.bootstrap, program.out, **{"isolation.level": "read_committed"})
    for one in totals:
        found = json.loads(one.value() or b"")
        assert found["count"] >= last.get(found["key"], 0), "batches keep their order"
        last[found["key"]] = found["count"]
    assert Counter(last) == Counter(expected)
