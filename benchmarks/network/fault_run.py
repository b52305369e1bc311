"""A topology on three nodes of Ray, one of which is lost, cut off or badly connected.

The scenarios in this folder run it as a program in the namespace of a node:

numbers ─▶ relay ─┬─▶ sink      a row in a file for each number
                  └─▶ gather    per key in a Redis that all nodes reach: which numbers have arrived
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.endurance.topologies import Item, relay
from benchmarks.measure import BenchmarkError
from benchmarks.network.namespaces import NODES, ROOT, ROUTER, Network, address
from benchmarks.network.ray_nodes import PORT, RayNodes, commands, environment, until
from benchmarks.outage_scenarios import _keyed_bits
from benchmarks.outage_scenarios._keyed_bits import KEYS, Keyed, gather, keyed, wrong_keys
from sunshower import Topology

Figures = dict[str, Any]
RATE = 500  # tuples a second
SHORT_S = 5.0  # far below `worker_timeout_s`
LONG_S = 90.0  # Ray declares a node dead after 5 checks of up to 13 s each
NODE = 2  # the disturbed node, unless that is the head
HEAD_AWAY_S = 10.0
_BEFORE_S, _AFTER_S = 15.0, 30.0  # of load before and after the fault
_START_MAX_S, _HEAL_MAX_S = 180.0, 180.0
_POLL_S = 0.25
_TRIES = 40  # submissions, until each node has a worker
_TABLES_PORT = 6380
_HEAD_STARTS_S = 120  # at most


def run_with_fault(what: str, seconds: float) -> Figures:
    """Disturb a node for `seconds`; `what` is a key of `Faults.all`.

    Raises MissingRequirement if the user may not create namespaces.
    """
    from benchmarks.outage_scenarios import redis

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ssn-")))
        prefix = f"ss{folder.name[-6:]}"
        network = stack.enter_context(Network(prefix))
        store = stack.enter_context(redis.running())
        words = [prefix, what, str(seconds), str(folder), store.url]
        if what == "head":
            stack.enter_context(redis.running(network.router, ROUTER, _TABLES_PORT))
            words.append(f"{ROUTER}:{_TABLES_PORT}")
        nodes = RayNodes(network, folder, *words[5:], head_away_max_s=_head_away_max_s(seconds))
        stack.enter_context(nodes.running())
        inside = ["ip", "netns", "exec", network.node(_client_node(what))]
        done = subprocess.run(
            [*inside, sys.executable, "-m", __name__, *words],
            check=False, capture_output=True, text=True, env=environment(), cwd=ROOT,
        )  # fmt: skip
        result = folder / "figures.json"
        if not result.exists():
            logs = "".join(log.read_text()[-1000:] for log in sorted(folder.glob("node*")))
            raise BenchmarkError(f"no figures: {done.stderr[-2000:]}{logs}")
        figures: Figures = json.loads(result.read_text(encoding="utf-8"))
        return figures


def _client_node(what: str) -> int:
    """The node on which the program runs: one that is not disturbed."""
    return int(what == "head")


def _head_away_max_s(seconds: float) -> int:
    return int(seconds) + _HEAD_STARTS_S


# ---- the topology --------------------------------------------------------------------------------


def keyed_item(item: Item) -> Iterator[Keyed]:
    """The number determines the key, and so the task of the spout: KEYS is a multiple of NODES."""
    yield from keyed(item.number)


def build_graph(source: Any, sink: Any, state: Any) -> Any:
    """The graph of the topology."""
    topology = Topology("partition", workers=NODES, ackers=NODES)
    items = topology.spout("numbers", source, NODES).shuffle()
    relayed = items.bolt("relay", relay, parallelism=NODES)
    relayed.fields("key").bolt("sink", sink, parallelism=NODES)
    pairs = relayed.shuffle().bolt("keyed", keyed_item, parallelism=NODES)
    pairs.group_by("key").process(gather, state=state, name="gather", parallelism=NODES)
    return topology.graph()


# ---- inside the namespace ------------------------------------------------------------------------


class Faults:
    """The faults that can be injected into a node for some seconds."""

    def __init__(self, network: Network, nodes: RayNodes) -> None:
        self._network, self._nodes = network, nodes
        self.all: dict[str, Callable[[], AbstractContextManager[None]]] = {
            "master": lambda: network.cut(0, NODE),
            "peers": lambda: network.cut(1, NODE),
            "slow": lambda: network.slow(NODE),
            "lost": self._lost,
            "isolated": self._isolated,
            "head": self._head,
        }

    @contextmanager
    def _lost(self) -> Iterator[None]:
        """As a machine without power: other nodes get no message about its end."""
        self._network.unplug(NODE)
        self._nodes.kill(NODE)
        yield

    @contextmanager
    def _isolated(self) -> Iterator[None]:
        with self._network.isolated(NODE):
            yield
        self._nodes.start_if_ended(NODE)

    @contextmanager
    def _head(self) -> Iterator[None]:
        self._nodes.kill(0)
        yield
        self._nodes.start(0)


def main(
    prefix: str, what: str, seconds: float, folder: Path, store: str, tables: str = ""
) -> None:
    """Run the topology, disturb a node, and write the figures."""
    from benchmarks import start_signal
    from benchmarks.endurance import row_files, topologies
    from sunshower.actors.cluster import RayCluster
    from sunshower.actors.shipping import ship
    from sunshower.trident import RedisState

    ship([start_signal, row_files, topologies, _keyed_bits])
    network, total = Network(prefix), int((seconds + _BEFORE_S + _AFTER_S) * RATE)
    nodes = RayNodes(network, folder, tables, _head_away_max_s(seconds))
    signal, state = start_signal.StartSignal(folder), RedisState(store, name="gathered")
    source = topologies.Numbers(signal, folder, RATE, total)
    _connect(address(_client_node(what)))
    with RayCluster() as cluster:
        until(lambda: _alive() == NODES, "all nodes", _START_MAX_S)
        run, placement = _submit_spread(
            cluster, build_graph(source, topologies.Sink(folder), state)
        )
        signal.send()
        time.sleep(_BEFORE_S)
        begun_ns, restarts = time.monotonic_ns(), run.snapshot().restarts
        replaced_s = -1.0
        with Faults(network, nodes).all[what]():
            while (passed_s := (time.monotonic_ns() - begun_ns) / 1e9) < seconds:
                if replaced_s < 0 and _restarts(run, restarts) > restarts:
                    replaced_s = round(passed_s, 1)
                time.sleep(_POLL_S)
            healed_ns = time.monotonic_ns()
        evaluation = _evaluate(run, folder, total, begun_ns, healed_ns)
        evaluation["states_wrong"] = wrong_keys(dict(state.items()), total)
        evaluation["workers_there"] = placement
        if what in ("master", "lost") or (what == "isolated" and seconds > SHORT_S):
            evaluation["replaced_s"] = replaced_s
        elif what != "head":
            evaluation["needless_replacements"] = evaluation["restarts"] - restarts
        if what in ("peers", "slow"):
            del evaluation["all_keys_flow_s"]  # some keys wait for the end of a cut
        evaluation["zombies"] = _zombies(network.node(NODE), run)
        evaluation["nodes"] = _alive()
        (folder / "figures.json").write_text(json.dumps(evaluation), encoding="utf-8")


def _connect(here: str) -> None:
    """Connect this process to the node at an address. By itself Ray takes the head's, whose files
    it finds on this machine."""
    import logging

    import ray

    from sunshower.actors.names import NAMESPACE

    ray.init(
        f"{address(0)}:{PORT}",
        namespace=NAMESPACE,
        _node_ip_address=here,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


def _submit_spread(cluster: Any, graph: Any) -> tuple[Any, list[int]]:
    """A run with its master on node 0 and a worker on each node, and the workers on NODE.

    Ray chooses the nodes of actors, so the topology is submitted until they are as needed.
    """
    import ray

    from sunshower.actors.names import master_name
    from sunshower.actors.processes import processes_of

    numbers = {
        node["NodeID"]: int(node["NodeManagerAddress"].split(".")[2]) for node in ray.nodes()
    }
    for _ in range(_TRIES):
        run = cluster.submit(graph)
        places = {numbers[node]: workers for node, workers in run.nodes().items()}
        master = numbers[processes_of(run.id)[master_name(run.id)].node]
        if master == 0 and len(places) == NODES:
            return run, places[NODE]
        run.stop()
    raise BenchmarkError(f"the workers are not spread: {places}, the master on {master}")


def _restarts(run: Any, default: int) -> int:
    from sunshower.errors import ClusterError

    try:
        return int(run.snapshot().restarts)
    except ClusterError:
        return default


def _has_ended(run: Any) -> bool:
    """False also while the master does not answer."""
    from sunshower.errors import ClusterError

    try:
        return bool(run.finished())
    except ClusterError:
        return False


def _evaluate(run: Any, folder: Path, total: int, begun_ns: int, healed_ns: int) -> Figures:
    """Wait for the end of the source, and evaluate the rows of the tasks."""
    from benchmarks.endurance.deliveries import NEVER, DeliveryTimes, causes
    from benchmarks.endurance.row_files import read_rows
    from sunshower.errors import SunshowerError

    try:
        until(lambda: _has_ended(run), "the end", _HEAL_MAX_S)
        snapshot = run.snapshot()
        state: Figures = {"state": str(snapshot.state), "restarts": snapshot.restarts}
        state["quarantined"] = len(snapshot.degraded)
    except (BenchmarkError, SunshowerError) as error:
        state = {"state": f"failed: {error}", "restarts": _restarts(run, -1)}
    deliveries = DeliveryTimes.of(
        total, *(read_rows(folder, what) for what in ("emitted", "sunk", "acked"))
    )
    acked = deliveries.acked[deliveries.acked != NEVER]
    delayed = deliveries.acked[(deliveries.emitted < healed_ns) & (deliveries.acked > healed_ns)]
    delayed = delayed[delayed != NEVER]
    during = (acked > begun_ns) & (acked < healed_ns)
    new = np.where(deliveries.emitted > begun_ns, deliveries.acked, NEVER)
    flows_ns = max(int(new[key::KEYS].min()) for key in range(KEYS)) - begun_ns
    return {
        **state,
        "tuples": total,
        "lost": deliveries.lost,
        "acked_early": deliveries.acked_early,
        "acked_during": int(during.sum()),
        "all_keys_flow_s": round(flows_ns / 1e9, 1),
        "resumed_s": round(float(delayed.min() - healed_ns) / 1e9, 1) if len(delayed) else 0.0,
        "caught_up_s": round(float(delayed.max() - healed_ns) / 1e9, 1) if len(delayed) else 0.0,
        "duplicates": deliveries.duplicates,
        "failures": str(causes(read_rows(folder, "failed"))),
    }


def _alive() -> int:
    """The number of nodes that Ray has."""
    import ray

    return sum(node["Alive"] for node in ray.nodes())


def _zombies(namespace: str, run: Any) -> int:
    """The number of processes of replaced workers that still run on the node."""
    from sunshower.actors.processes import processes_of

    now = {process.pid for process in processes_of(run.id).values()}
    by_name = commands(namespace).items()
    return sum(
        pid not in now and command.startswith("ray::SunshowerWorker") for pid, command in by_name
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]), *sys.argv[5:])
