"""Tests of requests on a real Ray while workers are killed: each caller gets a whole answer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sunshower import Retry, Topology
from sunshower.errors import RequestFailed, RequestTimeout, UnknownComponent
from tests.guarantee.deaths import until

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

PARTS = 8
pytestmark = pytest.mark.ray


class Ask(NamedTuple):
    number: int


class Part(NamedTuple):
    number: int
    part: int


def split(ask: Ask) -> Iterator[Part]:
    for part in range(PARTS):
        yield Part(ask.number, part)


def double(part: Part) -> Iterator[Part]:
    if part.number < 0:
        raise ValueError("negative")
    yield Part(part.number, part.part * 2)


def test_each_of_many_callers_has_its_whole_answer_although_workers_die(
    ray_cluster: RayCluster,
) -> None:
    topology = Topology("parts", workers=2)
    # A kill uses up an attempt of the request whose code is running; by default there is one.
    asks = topology.requests("asks", Ask, retry=Retry(attempts=5))
    asks.flat_map(split).shuffle().bolt("double", double, parallelism=2).answer()
    run = ray_cluster.submit(topology.graph())
    try:
        with ThreadPoolExecutor(16) as pool:
            calls = [
                pool.submit(run.ask, "asks", Ask(number), timeout_s=90.0) for number in range(100)
            ]
            for number, worker in ((20, 1), (60, 0)):  # worker 0 has the requests
                calls[number].result()
                run.kill_worker(worker)
            answers = [sorted(call.result()) for call in calls]
        whole = [[Part(number, part * 2) for part in range(PARTS)] for number in range(100)]
        assert answers == whole
        until(lambda: run.snapshot().restarts == 2)  # maybe the second one has not started yet
        with pytest.raises(RequestFailed, match=r"exception in double.*negative"):
            run.ask("asks", -1)
        with pytest.raises(RequestTimeout, match=r"within 1e-09 s"):
            run.ask("asks", 1, timeout_s=1e-9)
        with pytest.raises(UnknownComponent, match="it takes: asks"):
            run.ask("double", 1)
    finally:
        run.stop()
