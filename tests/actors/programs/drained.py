"""A Ray of its own, in which a node is added and one is drained: run by test_ends_on_ray.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from sunshower import Bolt, Context, Number, Resources, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.names import master_name
from sunshower.actors.processes import processes_of
from sunshower.actors.run import RayRun
from sunshower.runtime.control.lifecycle import State
from tests.actors.programs.evidence import TOTAL, Held, finish, until_acked
from tests.guarantee.deaths import until

FEW: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 80_000_000}


class Sum(Bolt[Number, None]):
    """Keeps all values in memory, to find records that were lost or processed twice."""

    def prepare(self, context: Context) -> None:
        self.seen: list[int] = []

    def process(self, record: Number) -> None:
        self.seen.append(record.value)

    def snapshot(self) -> list[int]:
        return self.seen

    def restore(self, state: list[int]) -> None:
        self.seen = state

    def result(self) -> list[int]:
        return self.seen


class InMemory(Bolt[Number, None]):
    """Its state cannot move."""

    def process(self, record: Number) -> None: ...


def topology(gate: Path, sink: Any) -> Topology:
    program = Topology("drained", workers=3, spout_pending=256)
    numbers = program.spout("numbers", Held(TOTAL, gate))
    half = Resources(num_cpus=0.5)
    numbers.fields("value").bolt("sum", sink, 3, resources=half)
    return program


def drain(nodes: Cluster, node: str) -> None:
    """Drain a node with the command of Ray, as an operator does."""
    command = ["drain-node", "--address", nodes.address, "--node-id", node]
    why = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "test"]
    ray = Path(sys.executable).with_name("ray")
    subprocess.run([ray, *command, *why, "--deadline-remaining-seconds", "600"], check=True)


def submitted(cluster: RayCluster, declared: Topology, node: str) -> RayRun:
    """A run with its master on that node: Ray chooses, so it is submitted until it is there."""
    while True:
        run = cluster.submit(declared.graph())
        if processes_of(run.id)[master_name(run.id)].node == node:
            return run
        run.stop()


def used(run: RayRun) -> set[str]:
    """The nodes of its workers and of its master."""
    return {process.node for process in processes_of(run.id).values()}


def check_moves(nodes: Cluster, second: Any, run: RayRun) -> None:
    """A rebalance without options moves a worker to a new node; all workers, and the master, leave
    a drained node."""
    until_acked(run, 100)
    assert sorted(map(len, run.nodes().values())) == [1, 2]
    third = nodes.add_node(**FEW)
    until(lambda: moved(run, third.node_id))
    workers = run.nodes()[second.node_id]
    assert len(workers) == 1
    drain(nodes, second.node_id)
    until(lambda: second.node_id not in used(run))
    until(lambda: run.snapshot().state == State.ACTIVE)
    assert not {*workers} & {*run.plan.workers}
    nodes.remove_node(second)
    until_acked(run, 1_000)


def moved(run: RayRun, node: str) -> bool:
    """Whether a rebalance has moved a worker to a node: the master may not know it yet."""
    run.rebalance()
    return node in run.nodes()


def check_stays(nodes: Cluster, cluster: RayCluster, gate: Path) -> None:
    """A task that cannot move stays on its node, and the other tasks of its worker leave it with
    their states, which survive the node."""
    program = Topology("stays", workers=2)
    numbers = program.spout("numbers", Held(TOTAL, gate), 2)
    numbers.fields("value").bolt("sum", Sum, 2)
    numbers.shuffle().bolt("held", InMemory, 2)
    run = cluster.submit(program.graph())
    until_acked(run, TOTAL // 2)
    drained = next(node for node in nodes.worker_nodes if node.node_id in run.nodes())
    drain(nodes, drained.node_id)
    until(lambda: sorted(map(len, run.nodes().values())) == [1, 2])
    until(lambda: run.snapshot().state == State.ACTIVE)
    until(lambda: is_reported(run))
    assert len(run.nodes()[drained.node_id]) == 1
    nodes.remove_node(drained)
    gate.touch()
    finish(run)
    assert {number for seen in run.results("sum") for number in seen} == {*range(TOTAL)}
    run.stop()


def is_reported(run: RayRun) -> bool:
    """Whether the task that stays is all that is reported, also in the log. A master that has left
    the drained node, too, has to look at the nodes first."""
    lines = run.snapshot().unplaced
    if len(lines) != 1:
        return False
    (line,) = lines
    is_logged = any(line in logged.text for logged in run.log_lines())
    return is_logged and "is being drained: the state of held[" in line


def main(folder: Path) -> None:
    head = {**FEW, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    second = nodes.add_node(**FEW)
    try:
        with RayCluster(nodes.address) as cluster:
            gate = folder / "gate"
            run = submitted(cluster, topology(gate, Sum), second.node_id)
            check_moves(nodes, second, run)
            gate.touch()
            finish(run)
            counts = run.snapshot().component("numbers")
            assert (counts.acked, counts.failed) == (TOTAL, 0), counts
            assert sorted(v for seen in run.results("sum") for v in seen) == [*range(TOTAL)]
            assert run.snapshot().restarts == 0
            run.stop()

            check_stays(nodes, cluster, folder / "second-gate")
    finally:
        nodes.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
