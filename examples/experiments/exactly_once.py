"""Exactly once: five actors and the broker are killed, and each word is counted once.

    sunshower experiment run examples/experiments/exactly_once.py --cluster ray

It needs the extras `kafka` and `servers`. The topology reads lines from a real Kafka in opaque
batches, and counts their words in SQLite. Meanwhile five random actors and the broker get a
SIGKILL. At the end the counts are compared with those of a plain program. Look for: some batches
are repeated, but the counts are the same.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from heapq import merge
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sunshower import Line, Topology
from sunshower.dev import Kafka
from sunshower.experiments import (
    CheckResult,
    Ending,
    Experiment,
    Facts,
    History,
    NoPrematureAck,
    Step,
    anybody,
    at,
    every,
    kill,
    outage,
    until,
)
from sunshower.kafka import BatchOptions, KafkaOpaque, Received, Text
from sunshower.state import SqliteState
from sunshower.trident import Bounds, InSqlite, batches, count

LINES = 20_000
WORDS = ["sun", "rain", "wind", "snow", "hail", "storm", "cloud", "mist", "frost", "thaw"]
FOLDER = TemporaryDirectory(prefix="exactly-once-", ignore_cleanup_errors=True)  # of all runs


class Word(NamedTuple):
    word: str


def lines() -> list[str]:
    """The same in every process."""
    chance = Random(7)
    return [" ".join(chance.choices(WORDS, k=5)) for _ in range(LINES)]


@cache
def broker() -> Kafka:
    """A real broker, which ends with this process."""
    return Kafka().start()


def filled() -> str:
    """A new topic with all lines in four partitions."""
    topic, where = f"lines-{uuid.uuid4().hex[:8]}", {"bootstrap.servers": broker().bootstrap}
    admin = AdminClient(where)
    admin.create_topics([NewTopic(topic, 4)])[topic].result(60)
    producer = Producer(where)
    for line in lines():
        producer.produce(topic, line.encode())
        producer.poll(0)
    assert producer.flush(60) == 0, "the lines were not delivered"
    return topic


def line(message: Received) -> Line:
    return Line(message.value)


def split(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(word)


class SameCounts:
    """The state has the counts of a plain program."""

    name = "same-counts"

    def check(self, history: History, facts: Facts) -> CheckResult:
        folder = Path(FOLDER.name)
        (file,) = folder.glob("*.counts.db")
        wanted = Counter(word for line in lines() for word in line.split())
        counted = dict(SqliteState(file).items())
        for done_with in folder.iterdir():  # the next repetition uses new files
            done_with.unlink()
        wrong = {
            word: (counted.get(word), times)
            for word, times in wanted.items()
            if counted.get(word) != times
        }
        said = [f"counts (found, wanted) differ: {wrong}"] * bool(wrong)
        holds = f"{sum(wanted.values()):,} words in {len(wanted)} counts"
        if facts.ending is Ending.FINISHED:
            return CheckResult(holds, broken=said)
        return CheckResult(holds, unknown=[*said, "it did not finish"])


def topology() -> Topology:
    topic = filled()
    spout = KafkaOpaque(
        {"bootstrap.servers": broker().bootstrap, "group.id": topic},
        topics=[topic],
        value=Text(),
        translate=line,
        emits=Line,
        options=BatchOptions(bounds=Bounds(records=150), until_end=True),
    )
    topology = Topology("exactly-once")
    folder = Path(FOLDER.name)
    store = InSqlite(folder / f"{topic}.batches.db")
    state = SqliteState(folder / f"{topic}.counts.db")
    read = batches(
        topology, "lines", spout, parallelism=2, store=store, max_batches=3, interval_s=0.2
    )
    words = read.shuffle(parallelism=2).flat_map(split)
    words.group_by("word").aggregate(count(), state=state, parallelism=2)
    return topology


def plan(kills: int, every_s: float, away_s: float) -> Iterator[Step]:
    down, up = partial(broker().kill, 1), partial(broker().restart, 1)
    away = outage("the broker", down, up, for_s=away_s)
    killing = until(every_s * (kills + 0.5), every(every_s, kill(anybody())))
    return merge(killing, at(every_s * 2.5, away))


experiment = Experiment(
    name="exactly-once",
    about="Actors and the broker are killed while words are counted in batches.",
    topology=topology,
    plan=plan,
    checkers=[SameCounts(), NoPrematureAck()],
    parameters={"kills": 5, "every_s": 4.0, "away_s": 2.0},
    seconds_max=300,
    simulated=False,
)
