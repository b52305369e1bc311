"""Status says for which partition windows wait, on ordinary streams and in batches."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from sunshower import Topology, count
from sunshower.cli.statistics import status_fields, watermark_lines
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state import MemoryState
from sunshower.trident import InMemory, batches
from tests.topologies.operators.windows.event_time_swarm import (
    FAR,
    SETTINGS,
    WINDOW,
    Event,
    EventLog,
    LogReader,
    relay,
)
from tests.trident.rigs.event_time_batches import Opaque, Transactional


def ordinary(log: EventLog) -> Topology:
    topology = Topology("events", **SETTINGS)
    stream = topology.spout("in", LogReader(log, 10))
    stream.map(relay, fields=("key", "number", "at")).window(WINDOW, count())
    return topology


def in_batches(kind: Any) -> Callable[[EventLog], Topology]:
    def topology_of(log: EventLog) -> Topology:
        topology = Topology("events", **SETTINGS)
        spout = kind(log, 10, Random(1) if kind is Opaque else None)
        stream = batches(topology, "in", spout, store=InMemory(), interval_s=0.5)
        stream = stream.partition_by("number").map(relay, fields=("key", "number", "at"))
        stream.window(WINDOW, count(), state=MemoryState())
        return topology

    return topology_of


KINDS = {
    "ordinary": ordinary,
    "transactional": in_batches(Transactional),
    "opaque": in_batches(Opaque),
}
of_each_kind = pytest.mark.parametrize("topology_of", KINDS.values(), ids=KINDS)


def run_for(run: SimRun, log: EventLog, seconds: int, *parts: int, later: float = 0.0) -> None:
    """Write a record to these partitions each second. `later`: added to its event time."""
    for _ in range(seconds):
        for part in parts:
            log.write(part, Event(1, run.now() + later))
        run.wait(1.0)


def waits(run: SimRun) -> list[str]:
    """What windows wait for, as a text status and one in JSON say. A stage repeats what its spout
    says."""
    lines = watermark_lines(run.plan.graph, run.snapshot())
    texts = [line.partition(": windows wait: ")[2] for line in lines if "windows wait" in line]
    components = status_fields(run.overview(), 1.0)["components"].values()
    assert [why for component in components for why in component["watermark_holds"]] == texts
    of_spout = [text for text in texts if " of in: " not in text]
    of_stage = [text.partition(" of in: ")[2] for text in texts if " of in: " in text]
    assert all(text.endswith(why) for text, why in zip(of_spout, of_stage, strict=False))
    return of_spout


@of_each_kind
def test_status_names_a_partition_that_is_away(topology_of: Callable[[EventLog], Topology]) -> None:
    log = EventLog(3, 1)
    with SimCluster(1) as cluster:
        run = cluster.submit(topology_of(log).graph())
        run_for(run, log, 5, 0, 1, 2)
        assert waits(run) == []
        log.away.add(1)
        run_for(run, log, 60, 0, 2)
        (why,) = waits(run)
        assert "no fetch has found the end of partition 1 for 6" in why
        log.come_back()
        run_for(run, log, 5, 0, 1, 2)
        assert waits(run) == []


@of_each_kind
def test_status_names_a_partition_without_records_until_it_is_passed_over(
    topology_of: Callable[[EventLog], Topology],
) -> None:
    log = EventLog(2, 1)
    with SimCluster(2) as cluster:
        run = cluster.submit(topology_of(log).graph())
        run_for(run, log, 5, 0, 1)
        run_for(run, log, 20, 1)
        (why,) = waits(run)
        assert "partition 0 has no records; if that lasts, it is passed over in " in why
        run_for(run, log, 20, 1)
        assert waits(run) == []


@of_each_kind
def test_status_names_a_partition_that_has_never_been_read(
    topology_of: Callable[[EventLog], Topology],
) -> None:
    log = EventLog(2, 1)
    log.away.add(0)
    with SimCluster(3) as cluster:
        run = cluster.submit(topology_of(log).graph())
        run_for(run, log, 50, 1)
        (why,) = waits(run)
        assert "no fetch has found the end of partition 0 for " in why


@of_each_kind
def test_status_says_that_all_times_are_ahead(topology_of: Callable[[EventLog], Topology]) -> None:
    log = EventLog(2, 1)
    with SimCluster(4) as cluster:
        run = cluster.submit(topology_of(log).graph())
        run_for(run, log, 60, 0, 1, later=FAR)
        (why,) = waits(run)
        assert "all times are more than 1 h ahead" in why


@of_each_kind
def test_windows_do_not_wait_after_the_end_of_a_source(
    topology_of: Callable[[EventLog], Topology],
) -> None:
    log = EventLog(2, 1)
    with SimCluster(5) as cluster:
        run = cluster.submit(topology_of(log).graph())
        run_for(run, log, 5, 0, 1)
        log.ended = True
        assert run.wait(60.0)
        assert waits(run) == []


@pytest.mark.parametrize("kind", ["transactional", "opaque"])
def test_status_says_how_far_a_source_of_batches_is(kind: str) -> None:
    log = EventLog(2, 1)
    with SimCluster(6) as cluster:
        run = cluster.submit(KINDS[kind](log).graph())
        run_for(run, log, 5, 0, 1)
        log.away.add(1)
        run_for(run, log, 30, 0)
        known = (run.snapshot().watermark(id) for id in run.plan.graph.components)
        (lag,) = [watermark[1] for watermark in known if watermark is not None]
        assert lag is not None
        assert 25.0 < lag < 35.0
