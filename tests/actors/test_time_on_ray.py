"""Time on real actors: ticks, a progress deadline and an automatic limit, in one short run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from sunshower import Bolt, Context, Counter, Number, Topology
from sunshower.runtime.plan import Layout

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster


class Summing(Bolt[Number, Number]):
    """Adds up its inputs, and emits the sum at each tick."""

    def prepare(self, context: Context) -> None:
        self.sum = 0

    def process(self, record: Number) -> None:
        self.sum += record.value

    def tick(self) -> Iterator[Number]:
        yield Number(self.sum)


class Receives(Bolt[Number, None]):
    def prepare(self, context: Context) -> None:
        self.last, self.ticks = 0, 0

    def process(self, record: Number) -> None:
        self.last, self.ticks = record.value, self.ticks + 1

    def result(self) -> tuple[int, int]:
        return self.last, self.ticks


class Lingers(Counter):
    """Numbers, and then nothing for twenty ticks of its own."""

    def __init__(self, stop: int) -> None:
        super().__init__(stop)
        self.ticks = 0

    def tick(self) -> None:
        self.ticks += 1

    def records(self) -> Iterator[Number]:
        yield from super().records()
        while self.ticks < 20:
            yield None  # type: ignore[misc]


@pytest.mark.long
def test_ticks_come_while_an_idle_topology_waits(ray_cluster: RayCluster) -> None:
    topology = Topology(
        "ticks", ackers=1, spout_pending="auto", message_timeout_s=1, message_timeout_max_s=20
    )
    source = topology.spout("numbers", Lingers(1_000), tick_s=0.1, message_timeout_s=5)
    sums = source.shuffle().bolt("sums", Summing, tick_s=0.1)
    sums.shuffle().bolt("receives", Receives)
    run = ray_cluster.submit(topology.graph(), Layout.ISOLATE)
    try:
        assert run.wait(150)
        ((last, ticks),) = run.results("receives")
        numbers = run.snapshot().component("numbers")
    finally:
        run.stop()
    assert last == sum(range(1_000))
    assert ticks >= 10, "two seconds, a tick every tenth"
    assert (numbers.acked, numbers.failed) == (1_000, 0)
