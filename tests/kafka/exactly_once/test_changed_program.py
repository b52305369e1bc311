"""Programs of batches from Kafka change while they run, and each message counts once.

The first one reads events, some twice and some broken, drops those whose id was there before, and
counts the others by key, into a topic. It is changed by commands, and a worker dies in each change.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from sunshower import Topology
from sunshower.dev.kafka import Kafka
from sunshower.errors import ClusterError
from sunshower.kafka import BatchOptions, KafkaTransactional, Received
from sunshower.runtime.control.lifecycle import State
from sunshower.state import SqliteState
from sunshower.trident import Bounds, InSqlite, batches, count, tumbling
from tests.guarantee.deaths import RECOVERY_S
from tests.kafka.topics import fill, new_topic, read_all
from tests.structure.reading import ROOT

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster
    from sunshower.actors.run import RayRun

JOB = """
import json
from collections.abc import Iterator
from typing import NamedTuple

from sunshower import KeyState, Topology
from sunshower.kafka import BatchOptions, KafkaTransactional, Received, TransactionalKafkaBolt
from sunshower.state import SqliteState
from sunshower.trident import Bounds, InSqlite, batches, count

KAFKA, SOURCE, OUT, FOLDER = {kafka!r}, {source!r}, {out!r}, {folder!r}


class Message(NamedTuple):
    value: bytes


class Event(NamedTuple):
    id: int
    key: str


class Total(NamedTuple):
    key: str
    count: int


def message(received: Received) -> Message:
    return Message(received.value or b"")


def parse_{version}(message: Message) -> Iterator[Event]:
    try:
        fields = json.loads(message.value)
        yield Event(int(fields["id"]), fields["key"])
    except (ValueError, KeyError, TypeError):
        return


def first_only(event: Event, seen: KeyState[bool]) -> Iterator[Event]:
    if not seen.value:
        seen.value = True
        yield event


topology = Topology("dedup-count", workers=2)
source = KafkaTransactional(
    {{**KAFKA, "group.id": SOURCE}},
    topics=[SOURCE],
    translate=message,
    emits=Message,
    options=BatchOptions(bounds=Bounds(records=20)),
)
store = InSqlite(f"{{FOLDER}}/batches.db")
rows = batches(topology, "events", source, store=store, interval_s=0.1, max_batches=2)
events = rows.flat_map(parse_{version})
unique = events.group_by("id").process(first_only, state=SqliteState(f"{{FOLDER}}/seen.db"))
totals = unique.group_by("key").aggregate(
    count(), state=SqliteState(f"{{FOLDER}}/counts.db"), fields=Total, name="counts"
)
out = TransactionalKafkaBolt(KAFKA, OUT, key="key", transactional_id=OUT)
totals.records("out").shuffle().bolt("to-counts", out)
"""
Run = Callable[..., "subprocess.Popen[str]"]


def messages(total: int) -> list[bytes]:
    draw, bodies = Random(1), list[bytes]()
    for number in range(total):
        body = json.dumps({"id": number, "key": f"k{number % 10}"}).encode()
        bodies += [body] * (2 if number % 20 == 3 else 1)
        if number % 50 == 7:
            bodies.append(draw.choice([b"not json", b'{"id": "x"}', b"\xff\xfe"]))
    return bodies


def counted_plainly(bootstrap: str, source: str) -> Counter[str]:
    """What a consumer counts that reads each message once."""
    ids, counts = set[int](), Counter[str]()
    for received in read_all(bootstrap, source):
        try:
            fields = json.loads(received.value() or b"")
            id, key = int(fields["id"]), fields["key"]
        except (ValueError, KeyError, TypeError):
            continue
        if id not in ids:
            ids.add(id)
            counts[key] += 1
    return counts


@pytest.fixture
def begin(ray_cluster: RayCluster) -> Iterator[Run]:
    """Begin a command of `sunshower` on the Ray of this test."""
    import ray

    address, processes = ray.get_runtime_context().gcs_address, list[subprocess.Popen[str]]()

    def run(*arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "sunshower", *map(str, arguments), "--address", address],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "150"},
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()
    for topology in ray_cluster.runs():
        ray_cluster.find(topology).stop()


def output(process: subprocess.Popen[str], run: RayRun | None = None) -> str:
    """What a command has printed, which has succeeded."""
    try:
        printed, _ = process.communicate(timeout=2 * RECOVERY_S)
    except subprocess.TimeoutExpired as error:
        lines = [] if run is None else [str(line) for line in run.log_lines()[-40:]]
        raise AssertionError("\n".join(lines)) from error
    assert process.returncode == 0, printed
    return printed


def kill_in(run: RayRun, process: subprocess.Popen[str] | None, draw: Random) -> None:
    """Kill a worker while tasks change, some time after the change has begun."""
    end_s = time.monotonic() + RECOVERY_S
    while run.snapshot().state is not State.REBALANCING:
        assert time.monotonic() < end_s
        if process is not None and process.poll() is not None:
            break
        run.wait(0.02)
    run.wait(draw.uniform(0.0, 1.5))
    for worker in draw.sample(run.plan.workers, k=len(run.plan.workers)):
        with suppress(ClusterError):  # it is not there yet, or not any more
            run.kill_worker(worker)
            return


def tasks_of(run: RayRun, *names: str) -> list[int]:
    return [len(run.plan.tasks_of(name)) for name in names]


@pytest.mark.long
@pytest.mark.servers
@pytest.mark.timeout(1_200)
def test_each_message_counts_once_while_commands_change_a_program_and_workers_die(
    ray_cluster: RayCluster, kafka: Kafka, tmp_path: Path, begin: Run
) -> None:
    """Its tasks are rescaled 1 → 2 → 3 → 1, and it is upgraded five times, and resumed once."""
    source, out = new_topic(kafka.bootstrap), new_topic(kafka.bootstrap)
    total, draw, file = 20_000, Random(1), tmp_path / "job.py"
    fill(kafka.bootstrap, source, messages(total))
    states = [SqliteState(tmp_path / name) for name in ("seen.db", "counts.db")]

    def write(version: int) -> None:
        settings = {"bootstrap.servers": kafka.bootstrap}
        file.write_text(
            JOB.format(
                kafka=settings, source=source, out=out, folder=str(tmp_path), version=version
            )
        )

    write(0)
    assert "dedup-count is active" in output(begin("submit", file))
    run: RayRun = ray_cluster.find("dedup-count")
    upgrades = 0
    for change in ("first_only=2", "", "first_only=3", "", "", "first_only=1", "counts=2", "", ""):
        if change:
            process = begin("rebalance", "dedup-count", "--tasks", change)
        else:
            upgrades += 1
            write(upgrades)
            process = begin("upgrade", "dedup-count", file, "--timeout", RECOVERY_S)
        kill_in(run, process, draw)
        printed = output(process, run)
        if change:
            name, tasks = change.split("=")
            assert tasks_of(run, name) == [int(tasks)], printed
        else:
            assert "dedup-count has the new code" in printed
            if upgrades == 3:
                assert "first_only: keeps the 3 tasks that a rebalance has made" in printed
                assert tasks_of(run, "first_only") == [3]
    assert upgrades == 5
    assert tasks_of(run, "first_only", "counts") == [1, 2]
    written = sum(dict(states[1].items()).values())
    assert 0 < written < total, "it was changed under load"
    savepoint = tmp_path / "dedup.savepoint"
    output(begin("kill", "dedup-count", "--keep", savepoint))
    output(begin("submit", file, "--resume", savepoint))
    run = ray_cluster.find("dedup-count")
    expected = counted_plainly(kafka.bootstrap, source)
    end_s = time.monotonic() + 2 * RECOVERY_S
    while sum(dict(states[1].items()).values()) < total:
        assert time.monotonic() < end_s, dict(states[1].items())
        run.wait(0.2)
    output(begin("kill", "dedup-count"))
    assert dict(states[1].items()) == dict(expected)
    assert len(dict(states[0].items())) == total
    last = dict[str, int]()
    for message in read_all(kafka.bootstrap, out, **{"isolation.level": "read_committed"}):
        fields = json.loads(message.value() or b"")
        assert fields["count"] >= last.get(fields["key"], 0), "batches keep their order"
        last[fields["key"]] = fields["count"]
    assert Counter(last) == expected


# ---- windows and joins ---------------------------------------------------------------------------


class Event(NamedTuple):
    id: int
    key: str


class Half(NamedTuple):
    id: int
    part: str


class Pair(NamedTuple):
    id: int
    key: str
    part: str


class InWindow(NamedTuple):
    key: str
    window: int
    count: int


def event(received: Received) -> Event:
    fields = json.loads(received.value or b"")
    return Event(fields["id"], fields["key"])


def halves(event: Event) -> Iterator[Half]:
    for part in ("a", "b"):
        yield Half(event.id, part)


EVENTS = 6_000
LENGTH = 100  # of a window


class Program:
    """Counts events by key and window, or the pairs of events and their halves by key and part."""

    def __init__(self, bootstrap: str, folder: Path, kind: str) -> None:
        self.settings, self.kind, self.folder = {"bootstrap.servers": bootstrap}, kind, folder
        self.source = new_topic(bootstrap)
        self.state = SqliteState(folder / "counts.db", name="counts")

    def topology(self) -> Topology:
        topology = Topology("changed", workers=2)
        consumer_settings = {**self.settings, "group.id": self.source}
        options = BatchOptions(bounds=Bounds(records=30))
        spout = KafkaTransactional(
            consumer_settings, topics=[self.source], translate=event, emits=Event, options=options
        )
        store = InSqlite(self.folder / "batches.db")
        events: Any = batches(topology, "events", spout, store=store, interval_s=0.1)
        settings: Any = {"state": self.state, "name": "counts"}
        if self.kind == "windows":
            window = tumbling(seconds=LENGTH, field="id")
            panes = SqliteState(self.folder / "panes.db", name="panes")
            rows = events.group_by("key").window(
                window, count(), state=panes, name="panes", fields=InWindow
            )
            rows.named("panes").group_by("key", "window").aggregate(count(), **settings)
        else:
            parts = events.flat_map(halves)
            pairs = events.join(parts, "id", fields=Pair, parallelism=1).named("panes")
            pairs.group_by("key", "part").aggregate(count(), **settings)
        return topology

    def expected(self) -> dict[Any, int]:
        if self.kind == "windows":
            ends = range(LENGTH, EVENTS + 1, LENGTH)
            return {(f"k{key}", end): 1 for key in range(5) for end in ends}
        return {(f"k{key}", part): EVENTS // 5 for key in range(5) for part in "ab"}


@pytest.mark.long
@pytest.mark.servers
@pytest.mark.parametrize("kind", ["windows", "joins"])
def test_windows_and_joins_count_once_while_their_tasks_and_code_change_and_workers_die(
    ray_cluster: RayCluster, kafka: Kafka, tmp_path: Path, kind: str
) -> None:
    program, draw = Program(kafka.bootstrap, tmp_path, kind), Random(1)
    ids = [*range(EVENTS), *([10 * EVENTS] if kind == "windows" else [])]  # it ends all windows
    bodies = [json.dumps({"id": id, "key": f"k{id % 5}"}).encode() for id in ids]
    fill(kafka.bootstrap, program.source, bodies)
    run: RayRun = ray_cluster.submit(program.topology().graph())
    try:
        for tasks in ({"panes": 2}, {}, {"panes": 3, "counts": 2}, {}, {"panes": 1}):
            run.wait(1.0)
            if tasks:
                run.rebalance(tasks=tasks, waits=False)
            else:
                run.upgrade(program.topology().graph(), waits=False)
            kill_in(run, None, draw)
            until_changed(run)
            assert tasks_of(run, *tasks) == [*tasks.values()]
        assert dict(program.state.items()) != program.expected(), "it was changed under load"
        end_s = time.monotonic() + RECOVERY_S
        while dict(program.state.items()) != program.expected():
            assert time.monotonic() < end_s, Counter(dict(program.state.items()).values())
            run.wait(0.2)
        run.wait(1.0)
        assert dict(program.state.items()) == program.expected()
    finally:
        run.stop()


def until_changed(run: RayRun) -> None:
    end_s = time.monotonic() + RECOVERY_S
    while run.snapshot().state is State.REBALANCING:
        assert time.monotonic() < end_s
        run.wait(0.05)
