"""Tests of random faults while partitions of a log move between tasks: no record is lost."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from sunshower import Bolt, Context, DeadLetter, Retry, Topology
from sunshower.config import Internals
from sunshower.errors import ClusterError, LifecycleError
from sunshower.runtime.events.event_log import What
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster, SimRun
from tests.contract.topologies import Item, Keep, relay
from tests.runtime.logs import Log, Reader
from tests.seeds import seeds
from tests.simulation.swarm import FAULTS

SEEDS = 40
PARTITIONS, EACH = 3, 30


class KeepLetters(Bolt[DeadLetter, None]):
    def prepare(self, context: Context) -> None:
        self.context = context

    def process(self, record: DeadLetter) -> None:
        self.context.wrote(record.record["text"])

    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...


def submit(seed: int, log: Log) -> SimRun:
    cluster = SimCluster(seed, nodes=1 + seed % 2, check=True)
    topology = Topology(
        "logs", ackers=1 + seed % 2, internals=Internals(peer_link_retry_s=0.5), spout_pending=16
    )
    retry = Retry(attempts=1_000, initial_s=0.01, dead_letters=True)
    items = topology.spout(
        "numbers", Reader(log, 5, refetches=seed % 2 == 1), parallelism=2, retry=retry
    )
    items.shuffle().bolt("relay", relay).shuffle().bolt("sink", Keep, parallelism=2)
    items.stream("dead_letters").shuffle().bolt("letters", KeepLetters())
    return cluster.submit(topology.graph(), list(Layout)[seed % 3 > 0], sample=1)


@seeds(SEEDS)
def test_no_record_of_a_log_is_lost_with_faults_while_partitions_move(seed: int) -> None:
    draw = Random(seed)
    log = Log(*([*map(Item, range(p * EACH, p * EACH + EACH))] for p in range(PARTITIONS)))
    log.partitions[1][7] = "text"
    run = submit(seed, log)
    faults = draw.sample(list(FAULTS), k=draw.randint(1, len(FAULTS)))
    for _ in range(6):
        run.wait(draw.expovariate(8.0))
        log.owners = [draw.randrange(2) for _ in range(PARTITIONS)]
        with suppress(ClusterError):
            FAULTS[draw.choice(faults)](run, draw)
    for worker in run.plan.workers:
        run.resume_worker(worker)
    run.disturb(InjectedFaults())
    with suppress(LifecycleError):
        run.activate()
    assert run.wait(600.0), f"seed {seed}: it does not end\n{run._describe()}"
    written = {entry.detail[0] for entry in run.history() if entry.what is What.WROTE}
    assert written == {*range(PARTITIONS * EACH), "text"} - {EACH + 7}
    assert log.settled
