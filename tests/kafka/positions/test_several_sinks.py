"""Sinks and exactly-once stores on one KafkaSpout in the simulator: no sink misses a record."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sunshower import Bolt, Context, Retry, Topology
from sunshower.config import Internals
from sunshower.errors import ClusterError
from sunshower.kafka.exactly_once.deduplicate import deduplicate
from sunshower.kafka.exactly_once.offsets_with_results import OffsetsWithResults
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.spout import KafkaSpout
from sunshower.kafka.zookeeper.options import PlainLayout, StoredOffsets
from sunshower.runtime.events.event_log import What
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state.tree import MemoryForest, MemoryTree
from tests.kafka.fakes import SETTINGS, AtOnce
from tests.kafka.positions.broker import Broker, BrokerClient
from tests.kafka.positions.test_positions import FIELDS, TABLE, write
from tests.seeds import seeds
from tests.simulation.swarm import FAULTS
from tests.trident.rigs.programs import heal

EACH = 30


class Sink(Bolt[Any, None]):
    """Reports each value, with its own name."""

    def prepare(self, context: Context) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        self.context.wrote((self.context.component, int(record[-1])))

    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...


def forward(record: Any) -> list[tuple[bytes]]:
    return [(record[-1],)]


def submit(seed: int, broker: Broker, forest: MemoryForest, offsets: OffsetsWithResults) -> SimRun:
    """A spout with one to three sinks; one of them may be behind another bolt."""
    draw = Random(seed)
    with_results = draw.random() < 0.7
    store: Any = offsets
    if not with_results:
        store = lambda _: StoredOffsets(MemoryTree(forest), PlainLayout("g"))  # noqa: E731
    options = KafkaOptions(directory=lambda _: broker, store=store, commit_s=0.1)
    spout = KafkaSpout(SETTINGS, topics=["a"], fields=FIELDS, options=options)
    topology = Topology(
        "sinks", ackers=1 + seed % 2, internals=Internals(peer_link_retry_s=0.5), spout_pending=32
    )
    retry = Retry(attempts=1_000, initial_s=0.01)
    lines = topology.spout("in", spout, parallelism=2, retry=retry)
    if with_results:
        results = offsets.bolt(write, TABLE)
        lines.fields("topic", "partition").bolt("results", results, parallelism=2)
    lines.shuffle().bolt("first", Sink, parallelism=draw.randint(1, 2))
    if draw.random() < 0.5:
        once = deduplicate("value", Sink(), store=lambda: MemoryTree(forest))
        lines.fields("value").bolt("once", once, parallelism=2)
    if draw.random() < 0.5:
        more = lines.shuffle().bolt("more", forward, fields=("value",))
        more.shuffle().bolt("last", Sink)
    return SimCluster(seed, nodes=1 + seed % 2, check=True).submit(
        topology.graph(), list(Layout)[seed % 3 > 0], sample=1
    )


@seeds(300)
def test_no_sink_misses_a_record_of_a_topic_whatever_dies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    for module in ("subscription", "partition_reader"):
        monkeypatch.setattr(f"sunshower.kafka.consuming.{module}.ThreadPoolExecutor", AtOnce)
    broker, draw = Broker(), Random(seed + 1)
    monkeypatch.setattr("sunshower.kafka.spout.Consumer", lambda _: BrokerClient(broker))
    broker.create("a", 3)
    for number in range(3 * EACH):
        broker.fill("a", number % 3, [str(number).encode()])
    offsets = OffsetsWithResults(tmp_path / "results.db", "id")
    offsets._open().setup(TABLE)
    run = submit(seed, broker, MemoryForest(), offsets)
    faults = [*draw.sample(list(FAULTS), k=3), "kill a worker"]
    for _ in range(6):
        run.wait(draw.expovariate(8.0))
        with suppress(ClusterError):
            FAULTS[draw.choice(faults)](run, draw)
    heal(run)
    sinks = {id for id in run.plan.graph.bolts if id in ("first", "once", "last")}
    wanted = {(sink, number) for sink in sinks for number in range(3 * EACH)}
    for _ in range(60):
        run.wait(5.0)
        written = {entry.detail[0] for entry in run.history() if entry.what is What.WROTE}
        if wanted <= written:
            break
    assert wanted <= written, f"seed {seed}: {sorted(wanted - written)[:5]}"
    if "results" in run.plan.graph.bolts:
        run.wait(60.0)
        with sqlite3.connect(str(offsets.place)) as db:
            rows = Counter(db.execute("SELECT partition, offset FROM got").fetchall())
        assert rows == Counter((number % 3, number // 3) for number in range(3 * EACH))
