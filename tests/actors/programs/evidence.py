"""A topology that keeps a history and writes files, and checks of both."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from sunshower import Bolt, Context, Counter, Number, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.flight_recorder import folder_of
from sunshower.actors.run import RayRun
from sunshower.config import Internals
from sunshower.runtime.events.event_log import Entry, What
from sunshower.runtime.plan import Layout, Task
from tests.guarantee.deaths import until

TOTAL = 10_000


class Held(Counter):
    """The numbers below `stop`, half of them only when the file `gate` is there: so the topology
    does not end before the test has injected its faults, however fast the machine is."""

    def __init__(self, stop: int, gate: Path) -> None:
        super().__init__(stop)
        self._held_from, self._gate = stop // 2, gate

    def records(self) -> Iterator[Number | None]:
        for number in super().records():
            while number.value >= self._held_from and not self._gate.exists():
                yield None
            yield number


class Endless(Counter):
    """All numbers, until the file `gate` is there: so the topology has work as long as the test
    needs it, however fast or slow the machine is. Its process must not be killed: the next one
    would not know at which number it ended."""

    def __init__(self, gate: Path) -> None:
        super().__init__()
        self._gate = gate

    def records(self) -> Iterator[Number]:
        return takewhile(lambda _: not self._gate.exists(), super().records())


def work(number: Number) -> Iterator[Number]:
    yield number


class Store(Bolt[Number, None]):
    """Notes each record in the history before it writes it to a file: after a kill in between, the
    file lacks the record, not the history."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self, context: Context) -> None:
        self._context = context
        path = self._folder / f"stored-{os.urandom(8).hex()}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def process(self, record: Number) -> None:
        self._context.wrote(record.value, self._context.index)
        os.write(self._file, f"{json.dumps(record.value)}\n".encode())


def stored(folder: Path) -> list[int]:
    """All that the sinks have written, in all lives of their workers."""
    files = sorted(folder.glob("stored-*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def topology(folder: Path, source: Counter | None = None, **settings: Any) -> Topology:
    """Numbers ──▶ work ──▶ store, two tasks of `work`; few are pending at a time, so that the
    topology is busy during a fault. `source`: by default `TOTAL` numbers."""
    limits = {
        "ackers": 1,
        "spout_pending": 256,
        "internals": Internals(peer_link_retry_s=0.1),
        **settings,
    }
    topology = Topology("evident", **limits)
    numbers = topology.spout("numbers", source or Counter(TOTAL))
    worked = numbers.shuffle().bolt("work", work, parallelism=2)
    worked.fields("value").bolt("store", Store(folder))
    return topology


@contextmanager
def submitted(cluster: RayCluster, topology: Topology, **how: Any) -> Iterator[RayRun]:
    """A run that is stopped at the end; nothing of it may be left."""
    run = cluster.submit(topology.graph(), **{"layout": Layout.ISOLATE, **how})
    try:
        yield run
    finally:
        run.stop()
    assert not folder_of(run.id).exists()


def finish(run: RayRun) -> None:
    """Wait for the end: long, because the machine may be busy."""
    assert run.wait(150), run.snapshot()


def acked(run: RayRun) -> int:
    return run.snapshot().component("numbers").acked


def until_acked(run: RayRun, count: int) -> None:
    until(lambda: acked(run) >= count)


def worker_of(run: RayRun, component: str, index: int = 0) -> int:
    """The worker of a task of a component."""
    return run.plan.tasks_of(component)[index].worker


def rows(entries: Iterable[Entry], what: What) -> dict[tuple[int, int], float]:
    """(root, value) of all entries of a kind → when it was noted first."""
    rows_found: dict[tuple[int, int], float] = {}
    for entry in entries:
        if entry.what is what:
            for row in zip(entry.roots.tolist(), entry.values.tolist(), strict=True):
                rows_found.setdefault(row, entry.at_s)
    return rows_found


def wrote(entries: Iterable[Entry]) -> list[int]:
    """The keys that sinks have noted as written."""
    return [entry.detail[0] for entry in entries if entry.what is What.WROTE]


def check_no_ack_came_too_soon(entries: list[Entry], sample: int = 1) -> int:
    """Check that every edge of a completed tree was acked before. Returns the number of trees."""
    edges: dict[int, list[int]] = defaultdict(list)
    for root, edge in rows(entries, What.SENT):
        edges[root].append(edge)
    processed = rows(entries, What.ACKED)
    completed = rows(entries, What.COMPLETED)
    assert completed
    for (root, _), at_s in completed.items():
        assert edges[root] or sample > 1, f"tree {root:x} has no edges"
        for edge in edges[root]:
            assert processed[root, edge] <= at_s
    return sum(bool(edges[root]) for root, _ in completed)


def finish_with_kills(
    run: RayRun, source: str, total: int, tasks: Sequence[Task], gate: Path
) -> None:
    """Kill the workers of `tasks`, one after the other, after an eighth of the `total` records of a
    held source; release the rest, and wait for the end."""
    for number, task in enumerate(tasks):
        until(partial(has_progressed, run, source, total, number))
        run.kill_worker(task.worker)
    until(partial(has_progressed, run, source, total, len(tasks)))
    gate.touch()
    finish(run)


def has_progressed(run: RayRun, source: str, total: int, restarts: int) -> bool:
    """Whether `restarts` workers were started again, and an eighth of the records is acked."""
    now = run.snapshot()
    return now.restarts >= restarts and now.component(source).acked > total // 8
