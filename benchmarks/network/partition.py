"""A topology on three nodes of Ray, of which one is cut off or badly connected for a while.

`partition_master`, `partition_peers` and `slow_network` run this module as a program inside the
head's namespace.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchmarkError
from benchmarks.network.namespaces import NODES, ROOT, Network, address, pids

Figures = dict[str, Any]
RATE = 500  # tuples a second
NODE = 2  # which is disturbed; the master is on node 0
_PORT = 6379
_BEFORE_S, _AFTER_S = 15.0, 30.0  # of load before and after
_START_MAX_S, _HEAL_MAX_S = 180.0, 180.0
_LOOK_S = 0.25
_TRIES = 40  # of a submission, until each node has a worker


def measured(what: str, seconds: float) -> Figures:
    """Disturb a node for so long: cut it off from the master's, or from another one, or slow it.

    Raises MissingRequirement where namespaces may not be made.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ssn-"))
        prefix = f"ss{os.getpid()}n"
        network = stack.enter_context(Network(prefix))
        stack.enter_context(_nodes(network, Path(folder)))
        words = [prefix, what, str(seconds), folder]
        command = ["ip", "netns", "exec", network.node(0), sys.executable, "-m", __name__, *words]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=_environment(), cwd=ROOT
        )
        result = Path(folder, "figures.json")
        if not result.exists():
            logs = "".join(one.read_text()[-1000:] for one in sorted(Path(folder).glob("node*")))
            raise BenchmarkError(f"no figures: {done.stderr[-2000:]}{logs}")
        figures: Figures = json.loads(result.read_text(encoding="utf-8"))
        return figures


@contextmanager
def _nodes(network: Network, folder: Path) -> Iterator[None]:
    """A Ray with a node in each namespace."""
    from sunshower.actors.starting import SYSTEM_CONFIG

    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1",
             "--object-store-memory=80000000", "--disable-usage-stats"]  # fmt: skip
    head = ["--head", f"--port={_PORT}", "--include-dashboard=false", f"--temp-dir={folder}/ray",
            f"--system-config={json.dumps(SYSTEM_CONFIG)}"]  # fmt: skip
    processes = []
    for number in range(NODES):
        more = head if number == 0 else [f"--address={address(0)}:{_PORT}"]
        inside = ["ip", "netns", "exec", network.node(number)]
        words = [*inside, *start, *more, f"--node-ip-address={address(number)}"]
        log = folder / f"node-{number}.log"
        with log.open("w") as file:
            processes.append(
                subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, env=_environment())
            )
        # One after the other: of two that started together on one machine, one hung.
        _until(lambda file=log: "Ray runtime started" in file.read_text(), f"node {number}")
    try:
        yield
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)


def _environment() -> dict[str, str]:
    settings = {"PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"}
    return {**os.environ, **settings, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}


def _until(is_so: Any, what: str, within_s: float = _START_MAX_S) -> float:
    begun_s = time.monotonic()
    while not is_so():
        if time.monotonic() - begun_s > within_s:
            raise BenchmarkError(f"{what} has not come in {within_s:g} s")
        time.sleep(_LOOK_S)
    return time.monotonic() - begun_s


# ---- inside the head's namespace -----------------------------------------------------------------


def main(prefix: str, what: str, seconds: float, folder: Path) -> None:
    """Run the topology, cut, heal, and write the figures."""
    import ray

    from benchmarks import gate
    from benchmarks.endurance import evidence, topologies
    from sunshower import Topology
    from sunshower.actors.cluster import RayCluster
    from sunshower.actors.names import master_name
    from sunshower.actors.processes import processes_of
    from sunshower.actors.shipping import ship
    from sunshower.runtime.plan import Layout

    ship([gate, evidence, topologies])
    network, total = Network(prefix), int((seconds + _BEFORE_S + _AFTER_S) * RATE)
    shut = gate.Gate(folder)
    topology = Topology("partition", workers=NODES, ackers=NODES)
    source = topologies.Numbers(shut, folder, RATE, total)
    items = topology.spout("numbers", source, NODES).shuffle()
    relayed = items.bolt("relay", topologies.relay, parallelism=NODES)
    relayed.fields("key").bolt("sink", topologies.Sink(folder), parallelism=NODES)
    with RayCluster(f"{address(0)}:{_PORT}") as cluster:
        _until(lambda: len([n for n in ray.nodes() if n["Alive"]]) == NODES, "all nodes")
        numbers = {
            node["NodeID"]: int(node["NodeManagerAddress"].split(".")[2]) for node in ray.nodes()
        }
        for _ in range(_TRIES):  # Ray spreads actors as it likes
            run = cluster.submit(topology.graph(), Layout.PACK)
            places = {numbers[node]: workers for node, workers in run.nodes().items()}
            master = numbers[processes_of(run.id)[master_name(run.id)].node]
            if master == 0 and len(places) == NODES:
                break
            run.stop()
        else:
            raise BenchmarkError(f"the workers are not spread: {places}, the master on {master}")
        disturbances = {
            "master": network.cut(0, NODE),
            "peers": network.cut(1, NODE),
            "slow": network.slow(NODE),
        }
        shut.open()
        time.sleep(_BEFORE_S)
        begun_ns, restarts = time.monotonic_ns(), run.snapshot().restarts
        replaced_s = -1.0
        with disturbances[what]:
            while (passed_s := (time.monotonic_ns() - begun_ns) / 1e9) < seconds:
                if replaced_s < 0 and _restarts(run, restarts) > restarts:
                    replaced_s = round(passed_s, 1)
                time.sleep(_LOOK_S)
            healed_ns = time.monotonic_ns()
        found = _after(run, folder, total, begun_ns, healed_ns)
        found["workers_there"] = places.get(NODE, [])
        if what == "master":
            found["replaced_s"] = replaced_s
        else:
            found["needless_replacements"] = found["restarts"] - restarts
        found["zombies"] = _zombies(network.node(NODE), run)
        (folder / "figures.json").write_text(json.dumps(found), encoding="utf-8")


def _restarts(run: Any, default: int) -> int:
    from sunshower.errors import ClusterError

    try:
        return int(run.snapshot().restarts)
    except ClusterError:
        return default


def _after(run: Any, folder: Path, total: int, cut_ns: int, healed_ns: int) -> Figures:
    """Wait for the end of the source, and settle the accounts."""
    from benchmarks.endurance.accounts import NEVER, Accounts, causes
    from benchmarks.endurance.evidence import read
    from sunshower.errors import SunshowerError

    try:
        _until(run.finished, "the end", _HEAL_MAX_S)
        snapshot = run.snapshot()
        state: Figures = {"state": str(snapshot.state), "restarts": snapshot.restarts}
        state["quarantined"] = len(snapshot.degraded)
    except (BenchmarkError, SunshowerError) as error:
        state = {"state": f"failed: {error}", "restarts": _restarts(run, -1)}
    accounts = Accounts.of(total, *(read(folder, what) for what in ("emitted", "sunk", "acked")))
    acked = accounts.acked[accounts.acked != NEVER]
    owed = accounts.acked[(accounts.emitted < healed_ns) & (accounts.acked > healed_ns)]
    owed = owed[owed != NEVER]
    during = (acked > cut_ns) & (acked < healed_ns)
    return {
        **state,
        "tuples": total,
        "lost": accounts.lost,
        "acked_early": accounts.acked_early,
        "acked_during": int(during.sum()),
        "resumed_s": round(float(owed.min() - healed_ns) / 1e9, 1) if len(owed) else 0.0,
        "caught_up_s": round(float(owed.max() - healed_ns) / 1e9, 1) if len(owed) else 0.0,
        "duplicates": accounts.duplicates,
        "failures": str(causes(read(folder, "failed"))),
    }


def _zombies(namespace: str, run: Any) -> int:
    """How many processes of workers still live on the node, besides the present ones."""
    from sunshower.actors.processes import processes_of

    now = {process.pid for process in processes_of(run.id).values()}
    found = 0
    for pid in set(pids(namespace)) - now:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            found += command.startswith("ray::WorkerActor")
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]))
