"""The long run: one topology under load, a fault every 20 s, and the resources of all processes.

`python -m benchmarks.endurance --hours 1`. The faults come in a random order that depends on the
seed, each kind equally often: a killed worker, master or Java of Spark, a frozen worker, and an
outage of the TCP server, the broker, ZooKeeper, PostgreSQL or the disk.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.endurance import resources, soak_pipelines, soak_topology
from benchmarks.endurance.resources import ResourceUse
from benchmarks.endurance.soak_pipelines import (
    READER,
    committed_rows,
    compare_rows,
    create_table,
    read_topic,
)
from benchmarks.endurance.soak_topology import SPOUTS, TOPIC, Endpoints
from benchmarks.measure import Log
from benchmarks.outage_scenarios import postgres, sink
from benchmarks.outage_scenarios.disk import fill, small_disk
from benchmarks.outage_scenarios.kafka import create_topics, is_read
from benchmarks.outage_scenarios.sink import Server
from sunshower.actors.cluster import RayCluster
from sunshower.actors.output import worker_output
from sunshower.actors.processes import processes_of
from sunshower.actors.run import RayRun
from sunshower.actors.shipping import ship
from sunshower.dev.kafka import Kafka
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.errors import ClusterError, SunshowerError
from sunshower.runtime.events.metrics import Counts
from sunshower.runtime.plan import Layout
from sunshower.state import SqliteState

EVERY_S = 20.0  # between the starts of two faults
AWAY_S = 10.0  # length of an outage
FROZEN_S = 45.0  # longer than the failure detector waits
SAMPLE_S = 5.0
DRAIN_MAX_S = 300.0
_DISK_BYTES_S = 64_000  # how fast the files on the small disk may grow
# Ray's log monitor keeps up to this number of log files of ended processes open. With Ray's
# default, 200, their number would grow for longer than the run.
_LOG_FILES = {"RAY_LOG_MONITOR_MAX_OPEN_FILES": "30"}
SPARK_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_READERS = ("from_kafka", READER)
CHAINS = (*SPOUTS, *_READERS, "rows of Spark")
TimedSample = tuple[float, dict[str, ResourceUse]]  # a sample, and when it was taken


@dataclass(frozen=True)
class Fault:
    """A fault: what begins it, and what ends it after `seconds`.

    `begin` returns False if there was no target.
    """

    name: str
    begin: Callable[[], object]
    end: Callable[[], object] = lambda: None
    seconds: float = 0.0


def run_soak(seconds: float, seed: int, log: Log) -> dict[str, Any]:
    """One run. If an error ends it early, returns the figures up to then, and the reason."""
    ship([sink, postgres, soak_pipelines, soak_topology])
    os.environ |= _LOG_FILES
    generator = np.random.default_rng(seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sunshower-soak-")))
        disk = stack.enter_context(small_disk((64 << 20) + int(seconds * _DISK_BYTES_S)))
        zookeeper = stack.enter_context(ZooKeeper())
        kafka = stack.enter_context(Kafka())
        create_topics(kafka.bootstrap, TOPIC)
        database = stack.enter_context(postgres.running())
        create_table(database.dsn)
        servers = [Server(folder / name) for name in ("server", "from_kafka")]
        for server in servers:
            server.start()
            stack.callback(server.stop)
        cluster = stack.enter_context(RayCluster())
        stack.enter_context(worker_output(lambda *_: None))  # without Ray's messages about deaths
        counts = SqliteState(disk / "counts.db", name="counts")
        connect = (kafka.bootstrap, zookeeper.connect, folder, database.dsn)
        endpoints = Endpoints(servers[0], servers[1], disk / "numbers.jsonl", counts, *connect)
        topology = soak_topology.declare(endpoints, seconds)
        run = cluster.submit(topology.graph(), Layout.PACK)
        stack.callback(run.stop)
        ballast = disk / "ballast"
        faults = [
            Fault("server away", servers[0].stop, servers[0].start, AWAY_S),
            Fault("broker away", partial(kafka.kill, 1), partial(kafka.restart, 1), AWAY_S),
            Fault("store away", zookeeper.kill, zookeeper.restart, AWAY_S),
            Fault("PostgreSQL away", database.stop, database.start, AWAY_S),
            Fault("Java of Spark killed", lambda: kill_java() > 0),
            Fault("disk full", partial(fill, ballast), ballast.unlink, AWAY_S),
            Fault("worker killed", lambda: run.kill_worker(_random_worker(run, generator))),
            Fault("master killed", run.kill_master),
            *_freeze_fault(run, generator),
        ]
        return _run_faults(run, endpoints, seconds, faults, generator, log)


def kill_java() -> int:
    """Kill the Java of Spark. Returns the number of killed processes: 0 if another fault has ended
    it."""
    killed = 0
    for pid in resources.descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if SPARK_SUBMIT.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                killed += 1
    return killed


def _freeze_fault(run: RayRun, generator: np.random.Generator) -> list[Fault]:
    """Stop a worker for a while. Its process may have been replaced when it is continued."""
    stopped: list[int] = []

    def begin() -> None:
        process = run.overview().processes[_random_worker(run, generator)]
        os.kill(process.pid, signal.SIGSTOP)
        stopped.append(process.pid)

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped.pop(), signal.SIGCONT)

    return [Fault("worker frozen", begin, end, FROZEN_S)]


def _run_faults(
    run: RayRun,
    endpoints: Endpoints,
    seconds: float,
    faults: list[Fault],
    generator: np.random.Generator,
    log: Log,
) -> dict[str, Any]:
    figures: dict[str, Any] = {"faults": {}, "recovery_s": {}}
    samples: list[TimedSample] = []
    begun_s = time.monotonic()
    sample_until = partial(_take_samples, run, endpoints, begun_s, samples)
    try:
        order = _random_order(len(faults), generator)
        for number in count():
            due_s = begun_s + number * EVERY_S
            sample_until(due_s)
            if time.monotonic() - begun_s > seconds - EVERY_S:
                break
            fault = faults[next(order)]
            recovery_s = _apply(run, endpoints, fault, sample_until, log)
            if recovery_s is None:
                continue
            worst_s = figures["recovery_s"].get(fault.name, 0.0)
            figures["recovery_s"][fault.name] = max(worst_s, round(recovery_s, 1))
            figures["faults"][fault.name] = figures["faults"].get(fault.name, 0) + 1
        sample_until(begun_s + seconds)
        figures |= _end_run(run, endpoints)
    except (SunshowerError, TimeoutError) as error:
        figures |= {"state": "failed", "why": str(error)[:2000]}
    figures["seconds"] = min(seconds, round(time.monotonic() - begun_s, 1))  # under load
    figures["failed"] = int(figures["state"] == "failed")
    figures["growth"] = resources.growth([sample for _, sample in samples])
    figures["not_flat"] = sum(not row["flat"] for row in figures["growth"])
    step = max(1, len(samples) // 60)
    figures["samples"] = [
        {
            "at_s": round(at_s),
            **{name: [round(amount, 1) for amount in held] for name, held in s.items()},
        }
        for at_s, s in samples[::step]
    ]
    return figures


def _apply(
    run: RayRun, endpoints: Endpoints, fault: Fault, sample_until: Callable[[float], None], log: Log
) -> float | None:
    """Begin a fault, end it, and wait until all chains continue.

    Returns how long that took, or None if there was no target.
    """
    try:
        has_begun = fault.begin() is not False
    except (ProcessLookupError, ClusterError) as error:  # another fault has just ended the process
        has_begun = False
        log(f"{fault.name}: {error}")
    if not has_begun:
        log(f"{fault.name}: there was no target")
        return None
    try:
        sample_until(time.monotonic() + fault.seconds)
    finally:
        fault.end()
    progress = partial(_progress, run, endpoints)
    recovery_s = until_all_continue(
        fault.name, progress, lambda: sample_until(time.monotonic() + 1.0), time.monotonic
    )
    log(f"{fault.name}: all chains continue {recovery_s:.1f} s after its end")
    return recovery_s


def until_all_continue(
    fault: str,
    progress: Callable[[], Sequence[int] | None],
    pause: Callable[[], object],
    now: Callable[[], float],
) -> float:
    """Wait until each chain is past its first known progress. Returns the seconds.

    `progress` returns None while it is unknown. Raises TimeoutError after DRAIN_MAX_S.
    """
    begun_s, before = now(), None
    while True:
        now_done = progress()
        if before is None:
            before = now_done
        elif now_done and all(later > first for later, first in zip(now_done, before, strict=True)):
            return now() - begun_s
        if now() - begun_s > DRAIN_MAX_S:
            raise TimeoutError(
                f"after {fault!r} not all chains continue: {', '.join(CHAINS)} were at {before}, "
                f"and {DRAIN_MAX_S:g} s later at {now_done}"
            )
        pause()


def _take_samples(
    run: RayRun, endpoints: Endpoints, begun_s: float, samples: list[TimedSample], until_s: float
) -> None:
    """Take samples until `until_s`."""
    while (left_s := until_s - time.monotonic()) > 0:
        last_s = begun_s + samples[-1][0] if samples else begun_s
        if time.monotonic() - last_s >= SAMPLE_S:
            actors = {
                process.pid: name.partition("/")[2]
                for name, process in processes_of(run.id).items()
            }
            held = resources.sample(actors)
            if (nodes := resources.zookeeper_nodes(endpoints.zookeeper)) is not None:
                held["ZooKeeper"] = ResourceUse(nodes=nodes)
            samples.append((time.monotonic() - begun_s, held))
        time.sleep(min(1.0, left_s))


def _end_run(run: RayRun, endpoints: Endpoints) -> dict[str, Any]:
    """End the numbers, and compare what was emitted with what has arrived."""
    endpoints.end.touch()
    end_s = time.monotonic() + DRAIN_MAX_S
    spouts = (*SPOUTS, *_READERS)
    messages: list[soak_pipelines.MessageRow] = []
    while time.monotonic() < end_s:
        snapshot = run.snapshot()
        pending = sum(snapshot.component(spout).pending for spout in spouts)
        if not pending and all(
            is_read(endpoints.bootstrap, TOPIC, group) for group in (TOPIC, READER)
        ):
            messages = messages or read_topic(endpoints.pipelines)
            if committed_rows(endpoints.pipelines) >= len(messages):
                break
        time.sleep(1.0)
    run.drain()
    run.wait(DRAIN_MAX_S)
    snapshot = run.snapshot()
    total = sum((snapshot.component(spout) for spout in spouts), Counts())
    emitted = [run.results(spout) for spout in SPOUTS]
    missing = soak_topology.count_missing(endpoints, emitted)
    rows = compare_rows(endpoints.pipelines, messages or read_topic(endpoints.pipelines))
    return {
        "state": str(snapshot.state),
        "drawn": sum(len(numbers) for task in emitted for numbers in task),
        "lost": sum(missing[spout] for spout in SPOUTS),
        "rows_counted": missing["rows"],
        "wrong_counts": missing["wrong counts"],
        **rows,
        "dead_letters": total.dead,
        "quarantined": len(snapshot.degraded),
        "restarts": snapshot.restarts,
        "replayed": total.replayed,
        "failures": dict(sorted(total.causes.items())),
    }


def _random_worker(run: RayRun, generator: np.random.Generator) -> int:
    return int(generator.choice(run.plan.workers))


def _random_order(faults: int, generator: np.random.Generator) -> Iterator[int]:
    """All faults in a random order, repeated endlessly, each time in another order."""
    while True:
        yield from generator.permutation(faults).tolist()


def _progress(run: RayRun, endpoints: Endpoints) -> list[int] | None:
    """The progress of CHAINS: what each spout has acked, and the rows of Spark's table.

    None if the master does not answer, or does not have the statistics of all workers yet: a
    restarted master first counts only what ended workers have acked.
    """
    try:
        snapshot = run.snapshot()
    except SunshowerError as error:
        if "does not answer" not in str(error):  # the master has just been killed
            raise
        return None
    if snapshot.workers.keys() < set(run.plan.workers):
        return None
    acked = [snapshot.component(spout).acked for spout in (*SPOUTS, *_READERS)]
    return [*acked, committed_rows(endpoints.pipelines)]
