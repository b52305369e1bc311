"""Drains two nodes: one while records flow, the next during an outage of a Redis they all need.

numbers ─▶ call ─┬─▶ held      per key in memory: which numbers have arrived
                 └─▶ stored    the same in the Redis

`call` takes 5 ms and writes to the Redis. All settings are defaults. The nodes are three raylets of
this machine; a drained node ends when its workers, and the master, have left it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchmarkError
from benchmarks.outage_scenarios import _keyed_bits, redis
from benchmarks.outage_scenarios._keyed_bits import Keyed, gather, wrong_keys
from sunshower import Bolt, Context, Number, Spout, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.names import master_name
from sunshower.actors.processes import processes_of
from sunshower.actors.run import RayRun
from sunshower.actors.shipping import ship
from sunshower.actors.starting import SYSTEM_CONFIG
from sunshower.errors import ClusterError, TopologyFailed
from sunshower.failures import Cause, Failure
from sunshower.state import RedisState

Figures = dict[str, Any]
_RATE = 100.0
_CALL_S = 0.005
_AROUND_S = 10.0  # of load before, between and after the drains
_NOTICE_S = 120  # seconds from the command until a drained node ends
_CAUGHT_UP_S = 180.0
_POLL_S = 0.2
_TRIES = 40  # submissions, until the placement is as needed
_NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000}


class Paced(Spout[Number]):
    """0, 1, 2, …, `rate` a second since `begun_s`, until the number in the file `end`."""

    def __init__(self, rate: float, end: Path) -> None:
        self._rate, self._end, self._begun_s = rate, end, time.time()

    def due(self) -> int:
        """How many numbers are due now."""
        return int((time.time() - self._begun_s) * self._rate)

    def records(self) -> Iterator[Number | None]:
        number = 0
        while not self._end.exists() or number < int(self._end.read_text()):
            if number >= self.due():
                yield None
            else:
                yield Number(number)
                number += 1


class Call(Bolt[Number, Keyed]):
    """Takes 5 ms for each number, and writes it to a list in Redis."""

    def __init__(self, url: str) -> None:
        self._url = url

    def prepare(self, context: Context) -> None:
        from redis import Redis

        self._redis = Redis.from_url(self._url, socket_timeout=5, socket_connect_timeout=5)

    def process(self, record: Number) -> Iterator[Keyed]:
        time.sleep(_CALL_S)
        self._redis.rpush("numbers", record.value)
        yield from _keyed_bits.keyed(record.value)

    def snapshot(self) -> None:
        """It has no state, so it may move."""

    def restore(self, state: None) -> None: ...


@dataclass(frozen=True)
class Load:
    """A topology for the nodes, and how its results are evaluated."""

    module: str  # of its code
    spout: str  # whose trees are counted
    declare: Callable[[Topology, Paced, str, Path], None]  # also the URL of the Redis, a folder
    results: Callable[[RayRun, str, int], Figures]  # also the URL, the number of numbers


class StatusWatch:
    """Polls the status of a topology, and measures how long its master is unavailable."""

    def __init__(self, run: RayRun) -> None:
        self.run = run
        self.states: list[str] = []  # in order, without repetitions
        self.waited: set[str] = set()
        self.lines: dict[str, None] = {}
        self.master_away_s = 0.0  # the longest time

    def until(self, condition: Callable[[], bool], within_s: float) -> float:
        """Poll until `condition` is true. Returns the seconds; -1 after `within_s`."""
        begun_s = answered_s = time.monotonic()
        while (now := time.monotonic()) < begun_s + within_s:
            try:
                self._poll()
                self.master_away_s = max(self.master_away_s, time.monotonic() - answered_s)
                answered_s = time.monotonic()
                if condition():
                    return round(now - begun_s, 1)
            except ClusterError:  # the master is restarting
                continue
            time.sleep(_POLL_S)
        return -1.0

    def watch_for(self, seconds: float) -> None:
        """Poll for `seconds`."""
        self.until(lambda: False, seconds)

    def _poll(self) -> None:
        snapshot = self.run.snapshot()
        if self.states[-1:] != [snapshot.state]:
            self.states.append(snapshot.state)
        self.waited |= {task.component for task in snapshot.waiting()}
        self.lines |= dict.fromkeys(snapshot.unplaced)


def declare(topology: Topology, source: Paced, url: str, folder: Path) -> None:
    """Numbers to two keyed states, one of them in the Redis."""
    del folder
    called = topology.spout("numbers", source).shuffle().bolt("call", Call(url), 2)
    called.group_by("key").process(gather, name="held", parallelism=2)
    state = RedisState(url, name="gathered")
    called.group_by("key").process(gather, name="stored", state=state, parallelism=2)


def results(run: RayRun, url: str, total: int) -> Figures:
    """Evaluates the states."""
    held = dict(run.entries("held", 10 * _keyed_bits.KEYS))
    stored = dict(RedisState(url, name="gathered").items())
    return {
        "lost": _keyed_bits.missing_numbers(stored, total),
        "states_wrong": wrong_keys(held, total) + wrong_keys(stored, total),
    }


def run(seconds: float) -> Figures:
    """The Redis is unavailable for `seconds`, while the second node is drained."""
    return run_drains(Load(__name__, "numbers", declare, results), seconds)


def run_drains(load: Load, seconds: float) -> Figures:
    """Drain two nodes under that load, the second during an outage of the Redis."""
    from ray.cluster_utils import Cluster

    ship([sys.modules[load.module], sys.modules[__name__], _keyed_bits])
    head = {**_NODE, "include_dashboard": False, "_system_config": SYSTEM_CONFIG}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    try:
        with redis.running() as server, tempfile.TemporaryDirectory() as folder:
            second, third = nodes.add_node(**_NODE), nodes.add_node(**_NODE)
            with RayCluster(nodes.address) as cluster:
                try:
                    where = cluster, nodes, [second, third], server, Path(folder)
                    return _drain_both(load, *where, seconds)
                except TopologyFailed as error:
                    return {"state": "failed", "why": str(error)[:500]}
    finally:
        nodes.shutdown()


def _drain_both(
    load: Load,
    cluster: RayCluster,
    nodes: Any,
    leaving: list[Any],
    server: redis.RedisServer,
    folder: Path,
    seconds: float,
) -> Figures:
    source, topology = Paced(_RATE, folder / "end"), Topology("drained")
    load.declare(topology, source, server.url, folder)
    run = _with_master_on(cluster, topology, {node.node_id for node in leaving})
    watch, figures = StatusWatch(run), Figures()
    watch.watch_for(_AROUND_S)
    node = next(candidate for candidate in leaving if candidate.node_id == _master_node(run))
    figures["left_s, flowing"] = _drain_node(nodes, node, watch)
    nodes.add_node(**_NODE)
    watch.watch_for(_AROUND_S)
    server.stop()
    watch.watch_for(_AROUND_S)
    nodes_in_order = sorted(
        nodes.worker_nodes, key=lambda candidate: candidate.node_id != _master_node(run)
    )
    node = next(candidate for candidate in nodes_in_order if candidate.node_id in run.nodes())
    begun_s = time.monotonic()
    figures["left_s, away"] = _drain_node(nodes, node, watch)
    watch.watch_for(seconds - _AROUND_S - (time.monotonic() - begun_s))
    server.start()
    acked = run.snapshot().component(load.spout).acked
    is_acked = lambda: run.snapshot().component(load.spout).acked > acked  # noqa: E731
    figures["recovery_s"] = watch.until(is_acked, _CAUGHT_UP_S)
    watch.watch_for(_AROUND_S)
    total = source.due()
    (folder / "new").write_text(str(total))
    (folder / "new").rename(folder / "end")
    figures["caught_up_s"] = watch.until(run.finished, _CAUGHT_UP_S)
    snapshot = run.snapshot()
    of_states = load.results(run, server.url, total)
    run.stop()
    trees = snapshot.component(load.spout)
    charged = [cause for cause in trees.causes if Failure(Cause(cause)).is_charged]
    return {
        "state": snapshot.state if figures["caught_up_s"] >= 0 else "failed: not finished",
        **figures,
        "tuples": total,
        **of_states,
        **{f"failed: {cause}": count for cause, count in sorted(trees.causes.items())},
        "charged": sum(trees.causes[cause] for cause in charged),
        "dead letters": trees.dead,
        "quarantined": len(snapshot.degraded),
        "restarts": snapshot.restarts,
        "master_away_s": round(watch.master_away_s, 1),
        "states": " ".join(watch.states),
        "waited": " ".join(sorted(watch.waited)),
        "lines": "; ".join(watch.lines),
    }


def _with_master_on(cluster: RayCluster, topology: Topology, nodes: Collection[str]) -> RayRun:
    """A run whose master and a worker are on one of these nodes. Ray chooses the nodes, so it is
    submitted until they are."""
    for _ in range(_TRIES):
        run = cluster.submit(topology.graph())
        if _master_node(run) in {*nodes} & run.nodes().keys():
            return run
        run.stop()
    raise BenchmarkError(f"no master shared a node with a worker, of {', '.join(nodes)}")


def _master_node(run: RayRun) -> str:
    process = processes_of(run.id).get(master_name(run.id))
    return "" if process is None else process.node


def _drain_node(nodes: Any, node: Any, watch: StatusWatch) -> float:
    """Drain a node as an operator does, and end it when its workers, and the master, have left.
    Returns the seconds until the workers had left. Raises BenchmarkError if one has not."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "drain-node"]
    which = ["--address", nodes.address, "--node-id", node.node_id]
    why = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "benchmark"]
    ends = ["--deadline-remaining-seconds", str(_NOTICE_S)]
    subprocess.run([*command, *which, *why, *ends], check=True, stdout=subprocess.DEVNULL)
    left_s = watch.until(lambda: node.node_id not in watch.run.nodes(), _NOTICE_S)
    if left_s < 0 or watch.until(lambda: node.node_id != _master_node(watch.run), _NOTICE_S) < 0:
        raise BenchmarkError(f"a worker, or the master, was on the drained node for {_NOTICE_S} s")
    nodes.remove_node(node)
    return left_s
