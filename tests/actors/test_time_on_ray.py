"""Time on real actors: ticks, a progress deadline and an automatic limit, in one short run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sunshower import Bolt, Context, Counter, Number, Topology
from sunshower.runtime.plan import Layout
from tests.guarantee.deaths import until

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
    """Numbers, and then nothing for twenty ticks of its own, and until the file `end` is there."""

    def __init__(self, stop: int, end: Path) -> None:
        super().__init__(stop)
        self.ticks, self.end = 0, end

    def tick(self) -> None:
        self.ticks += 1

    def records(self) -> Iterator[Number]:
        yield from super().records()
        while self.ticks < 20 or not self.end.exists():
            yield None  # type: ignore[misc]


@pytest.mark.long
def test_ticks_come_while_an_idle_topology_waits(ray_cluster: RayCluster, tmp_path: Path) -> None:
    topology = Topology(
        "ticks", ackers=1, spout_pending="auto", message_timeout_s=1, message_timeout_max_s=120
    )
    end = tmp_path / "end"
    source = topology.spout("numbers", Lingers(1_000, end), tick_s=0.1, message_timeout_s=60)
    sums = source.shuffle().bolt("sums", Summing, tick_s=0.1)
    sums.shuffle().bolt("receives", Receives)
    run = ray_cluster.submit(topology.graph(), Layout.ISOLATE)

    def has_received_enough() -> bool:
        (seen,) = run.results("receives")
        return seen is not None and seen >= (sum(range(1_000)), 10)

    try:
        until(has_received_enough)
        end.touch()
        assert run.wait(150)
        ((last, ticks),) = run.results("receives")
        numbers = run.snapshot().component("numbers")
    finally:
        run.stop()
    assert last == sum(range(1_000))
    assert ticks >= 10, "two seconds, a tick every tenth"
    assert (numbers.acked, numbers.failed) == (1_000, 0)
