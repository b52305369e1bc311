"""Bolts whose threads emit, ack and fail, on Ray: with ticks, and rebalances under load."""

from __future__ import annotations

import os
import threading
from collections import Counter
from itertools import count as counter
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from sunshower import Bolt, Cause, Collector, Context, Number, Retry, Topology, Tuple
from sunshower.errors import ProtocolError
from sunshower.topologies.components import Stateless
from tests.actors.programs.evidence import Held, until_acked
from tests.guarantee.deaths import RECOVERY_S

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

THREADS = 8


class Part(NamedTuple):
    value: int
    part: int
    call: str  # a name of the call that emitted it


class Pool(Bolt[Number, Part]):
    """Eight threads process the inputs; every thirteenth waits for a tick, every eleventh fails at
    first. A thread stays in its process, and so does the task, because it has no snapshot."""

    def prepare(self, context: Context) -> None:
        self.place = f"{os.getpid()} {id(self)}"
        self.calls = counter()
        self.inputs: SimpleQueue[Any] = SimpleQueue()
        self.at_tick: list[Any] = []
        self.failed: set[int] = set()
        self.errors: list[BaseException] = []
        self.threads = [threading.Thread(target=self.work) for _ in range(THREADS)]
        for thread in self.threads:
            thread.start()

    def execute(self, tuple: Tuple[Number], out: Collector[Part]) -> None:
        if tuple.record.value % 13:
            self.inputs.put((tuple, out))
        else:
            self.at_tick.append((tuple, out))

    def tick(self) -> None:
        waiting, self.at_tick = self.at_tick, []
        for tuple, out in waiting:
            self.settle(tuple, out)

    def work(self) -> None:
        while (pair := self.inputs.get()) is not None:
            try:
                self.settle(*pair)
            except ProtocolError as error:
                self.errors.append(error)

    def settle(self, tuple: Tuple[Number], out: Collector[Part]) -> None:
        value, call = tuple.record.value, f"{self.place} {next(self.calls)}"
        if value % 11 == 3 and value not in self.failed:
            self.failed.add(value)
            out.fail(tuple, "at first")
            return
        for part in range(value % 4):
            out.emit(Part(value, part, call), tuple)
        out.ack(tuple)

    def result(self) -> list[str]:
        return [str(error) for error in self.errors]

    def cleanup(self) -> None:
        for _ in self.threads:
            self.inputs.put(None)
        for thread in self.threads:
            thread.join()


class MovingPool(Stateless, Pool):
    """May move: the object in the new process has its own threads."""


class Slow(Pool):
    """Its threads begin after the last `execute` has returned."""

    def execute(self, tuple: Tuple[Number], out: Collector[Part]) -> None:
        self.at_tick.append((tuple, out))
        if len(self.at_tick) == 50:
            threading.Timer(0.05, self.begin).start()

    def begin(self) -> None:
        for pair in self.at_tick:
            self.inputs.put(pair)

    def settle(self, tuple: Tuple[Number], out: Collector[Part]) -> None:
        self.failed.add(tuple.record.value)
        super().settle(tuple, out)


class Parts(Bolt[Part, None]):
    def prepare(self, context: Context) -> None:
        self.parts: Counter[Part] = Counter()

    def process(self, record: Part) -> None:
        self.parts[record] += 1

    def snapshot(self) -> Any:
        return self.parts

    def restore(self, state: Any) -> None:
        self.parts = state

    def result(self) -> Counter[Part]:
        return self.parts


def test_acks_of_threads_need_no_further_input(ray_cluster: RayCluster, tmp_path: Path) -> None:
    """The last inputs are with the threads when the worker has nothing else to do."""
    (gate := tmp_path / "gate").touch()
    topology = Topology("threads", message_timeout_s=120)
    numbers = topology.spout("numbers", Held(50, gate), retry=Retry(attempts=2))
    numbers.shuffle().bolt("pool", Slow, tick_s=3600.0).shuffle().bolt("parts", Parts)
    run = ray_cluster.submit(topology.graph())
    try:
        assert run.wait(RECOVERY_S), run.snapshot()
        counts = run.snapshot().component("numbers")
        assert (counts.acked, counts.failed) == (50, 0)
        (parts,) = run.results("parts")
        assert len(parts) == sum(value % 4 for value in range(50))
    finally:
        run.stop()


@pytest.mark.long
@pytest.mark.parametrize("count", [5_000, 100_000])
@pytest.mark.parametrize("pool", [Pool, MovingPool])
def test_every_call_of_eight_threads_takes_effect_once_in_spite_of_rebalances(
    pool: type[Pool], count: int, ray_cluster: RayCluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    topology = Topology("threads", message_timeout_s=120, spout_pending=500)
    numbers = topology.spout("numbers", Held(count, gate), retry=Retry(attempts=20))
    pooled = numbers.shuffle().bolt("pool", pool, parallelism=2, tick_s=0.05)
    pooled.fields("value").bolt("parts", Parts, parallelism=2)
    run = ray_cluster.submit(topology.graph())
    try:
        for workers in (3, 2):
            until_acked(run, run.snapshot().component("numbers").acked + 1)
            run.rebalance(workers=workers, wait_s=0)
            if workers == 3:
                gate.touch()
        assert run.wait(RECOVERY_S * 3), run.snapshot()
        parts: Counter[Part] = sum(run.results("parts"), Counter())
        assert set(parts.values()) == {1}, "no emit is carried out twice"
        expected = {(value, part) for value in range(count) for part in range(value % 4)}
        assert {(part.value, part.part) for part in parts} == expected
        assert run.results("pool") == [[], []]
        counts = run.snapshot().component("numbers")
        assert counts.dead == 0
        assert counts.acked >= count, "a spout that moves reads unsettled records again"
        assert set(counts.causes) <= {Cause.FAILED, Cause.REBALANCED}
    finally:
        run.stop()
