"""The topology of the long run: six chains, each with a dependency that has outages.

numbers ──▶ a TCP server                              at least once
numbers ──▶ JSON lines on a small disk                at least once
numbers ──▶ topic ──▶ a TCP server                    at least once, through Kafka
batches of words ──▶ counts on the small disk         exactly once, progress in ZooKeeper
and the two pipelines of soak_pipelines.py, which read the topic
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from benchmarks.endurance.soak_pipelines import PipelineEndpoints, declare_pipelines
from benchmarks.outage_scenarios.sink import Server, Write
from sunshower import Context, DeadLetter, JsonLines, Number, Retry, Spout, Topology
from sunshower.kafka.producing.kafka_bolt import KafkaBolt
from sunshower.kafka.spout import KafkaSpout
from sunshower.state import SqliteState
from sunshower.trident import Bounds, InZooKeeper, Skip, TextFileBatches, batches
from sunshower.trident import count as counted

RATE = 200.0  # numbers a second, of each chain
_WORDS = 1_000
_BATCH_ROWS, _BATCH_S = 97, 0.5
TOPIC = "soak"  # also the group that reads it
SPOUTS = ("to_server", "to_disk", "to_kafka")


class Paced(Spout[Number]):
    """0, 1, 2 …, `rate` a second since a time that all processes of this machine share, until the
    file `end` exists."""

    def __init__(self, rate: float, begun_s: float, end: Path) -> None:
        self._rate, self._begun_s, self._end = rate, begun_s, end

    def open(self, context: Context) -> None:
        self._first, self._step = context.index, context.parallelism
        self._next = self._first

    def records(self) -> Iterator[Number | None]:
        for number in count(self._first, self._step):
            self._next = number
            while number >= (time.monotonic() - self._begun_s) * self._rate:
                if self._end.exists():
                    return
                yield None
            yield Number(number)

    def result(self) -> range:
        """All numbers that the task has emitted, over all its lives."""
        return range(self._first, self._next, self._step)


def parse_number(record: Any) -> Iterator[Number]:
    """The number in a message."""
    yield Number(int(record.value))


def discard(letter: DeadLetter) -> None:
    """Discard a dead letter; there should be none."""
    del letter


@dataclass(frozen=True)
class Endpoints:
    """The destinations of the chains, and the servers they depend on."""

    server: Server
    from_kafka: Server
    lines: Path
    counts: SqliteState
    bootstrap: str
    zookeeper: str
    folder: Path  # for the words, the dead letters of batches, and Spark's table
    dsn: str

    @property
    def pipelines(self) -> PipelineEndpoints:
        """The destinations of the two pipelines that read the topic."""
        return PipelineEndpoints(self.bootstrap, TOPIC, self.zookeeper, self.folder, self.dsn)

    @property
    def end(self) -> Path:
        """The file whose existence ends the numbers."""
        return self.folder / "end"


def declare(endpoints: Endpoints, seconds: float) -> Topology:
    """The topology, with enough words for `seconds`."""
    words = endpoints.folder / "words.txt"
    total = int(2 * seconds * _BATCH_ROWS / _BATCH_S)
    with words.open("w", encoding="ascii") as file:
        file.writelines(f"w{number % _WORDS}\n" for number in range(total))
    topology, begun_s = Topology("soak", workers=2, ackers=2), time.monotonic()
    retry = Retry(dead_letters=True)
    settings = {"bootstrap.servers": endpoints.bootstrap}
    sinks = (
        Write(endpoints.server.port),
        JsonLines(endpoints.lines),
        KafkaBolt(settings, TOPIC, value="value"),
    )
    letters = []
    for name, sink in zip(SPOUTS, sinks, strict=True):
        spout = topology.spout(name, Paced(RATE, begun_s, endpoints.end), 2, retry=retry)
        spout.shuffle().bolt(f"{name}_sink", sink)
        letters.append(spout)
    read = topology.spout(
        "from_kafka", KafkaSpout({**settings, "group.id": TOPIC}, topics=[TOPIC]), 2, retry=retry
    )
    parsed = read.shuffle().bolt("parse", parse_number)
    parsed.shuffle().bolt("from_kafka_sink", Write(endpoints.from_kafka.port))
    pipelines = declare_pipelines(topology, endpoints.pipelines, retry)
    for spout in (*letters, read, pipelines):
        dead = spout.stream("dead_letters", DeadLetter)
        dead.shuffle().bolt(f"discard_{spout.component}", discard)
    source = TextFileBatches(words, bounds=Bounds(records=_BATCH_ROWS), shares=1)
    store = InZooKeeper(endpoints.zookeeper)
    skip = Skip(dead_letters=endpoints.folder / "skipped.jsonl")
    lines = batches(topology, "words", source, skip=skip, store=store, interval_s=_BATCH_S)
    lines.group_by("text").aggregate(counted(), state=endpoints.counts)
    return topology


def count_missing(endpoints: Endpoints, emitted: Sequence[Iterable[range]]) -> dict[str, int]:
    """What is missing at the end of each chain. `emitted`: by the tasks of each of SPOUTS."""
    figures = {
        "to_server": _numbers(endpoints.server.file),
        "to_disk": {json.loads(line)["value"] for line in endpoints.lines.read_text().splitlines()},
        "to_kafka": _numbers(endpoints.from_kafka.file),
    }
    missing = {
        name: len(set(chain.from_iterable(numbers)) - figures[name])
        for name, numbers in zip(SPOUTS, emitted, strict=True)
    }
    counts = {str(word): times for word, times in endpoints.counts.items()}
    rows = sum(counts.values())
    expected = {f"w{n}": rows // _WORDS + (n < rows % _WORDS) for n in range(_WORDS)}
    wrong = sum(counts.get(word, 0) != times for word, times in expected.items())
    return {**missing, "wrong counts": wrong, "rows": rows}


def _numbers(file: Path) -> set[int]:
    return {int(word) for line in file.read_text().splitlines() for word in line.split()}
