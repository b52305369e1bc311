"""Tests of replaying dead letters into a running topology, while workers die and tasks move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from sunshower import Bolt, DeadLetter, Records, Retry, Topology, count, tumbling
from sunshower.errors import RequestFailed, RequestRefused, RequestTimeout, UnknownComponent
from sunshower.runtime.events.event_log import What
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCaller, SimCluster, SimRun
from sunshower.simulation.worker import Killed
from tests.seeds import seeds

COUNT = 12


class Item(NamedTuple):
    number: int


class Written:
    """A sink whose list all its processes share."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def __deepcopy__(self, _: Any) -> Written:
        return self

    def snapshot(self) -> None: ...

    def restore(self, state: Any) -> None: ...


class Sink(Written, Bolt[Item, None]):
    """Raises for -1; its process dies at -13."""

    def process(self, item: Item) -> None:
        if item.number == -1:
            raise ValueError("no -1")
        if item.number == -13:
            raise Killed
        self.seen.append(item.number)


class KeepsLetters(Written, Bolt[DeadLetter, None]):
    def process(self, letter: DeadLetter) -> None:
        self.seen.append(letter)


def endless() -> Iterator[Item | None]:
    yield from map(Item, range(5))
    while True:
        yield None


def declared(seen: list[int], letters: list[DeadLetter], retry: Retry | None = None) -> Topology:
    topology = Topology("t", workers=3)
    retry = retry or Retry(attempts=2, dead_letters=True)
    items = topology.spout("items", Records(endless, type=Item), retry=retry)
    items.shuffle().bolt("sink", Sink(seen), parallelism=2)
    items.stream("dead_letters").shuffle().bolt("kept", KeepsLetters(letters))
    topology.spout("others", Records([Item(1)], type=Item)).shuffle().bolt("ignore", _ignore)
    return topology


def _ignore(item: Item) -> None: ...


def letter(number: int) -> DeadLetter:
    return DeadLetter(
        number, {"number": number}, "items", 2, "exception", "sink", 0, 0, "", "ValueError", ""
    )


def results_of(run: SimRun, callers: list[SimCaller]) -> list[Any]:
    while not all(caller.has_ended for caller in callers):
        run.wait(0.1)
    return [caller.result for caller in callers]


@seeds(20, kinds=2)
def test_each_letter_is_settled_while_workers_die_and_tasks_move(seed: int) -> None:
    seen: list[int] = []
    letters: list[DeadLetter] = []
    with SimCluster(seed, latency_s=0.001, check=True) as cluster:
        run = cluster.submit(declared(seen, letters).graph(), Layout.ISOLATE, sample=1)
        callers = [run.send("items", letter(number), timeout_s=120) for number in range(10, 22)]
        callers.append(run.send("items", letter(-1), timeout_s=120))
        run.wait(0.02 * (seed % 5))
        run.kill_worker(run.plan.tasks_of("items" if seed % 2 else "sink")[0].worker)
        run.wait(0.3)
        if seed % 3 == 0:
            run.rebalance(workers=2, layout=Layout.PACK)
        *acked, dead = results_of(run, callers)
        assert acked == [["acked"]] * COUNT
        assert dead == ["dead letter"]
        assert {*range(5), *range(10, 22)} <= {*seen}, "at least once"
        assert {dead_letter.message_id for dead_letter in letters} == {-1}
        run.wait(40)
        (dead,) = {
            entry.values.view(np.int64)[0] for entry in run.history() if entry.what is What.DEAD
        }
        assert dead < 0, "the number of a replayed letter, which no record of the spout has"
        assert run.snapshot().component("items").pending == 0


def test_a_letter_that_ends_each_process_is_given_up() -> None:
    with SimCluster(1, latency_s=0.001) as cluster:
        run = cluster.submit(declared([], []).graph())
        with pytest.raises(RequestFailed, match="lost 3 times with the process that had it"):
            run.ask("items", letter(-13), timeout_s=600)


def test_a_letter_is_not_settled_while_the_topology_is_inactive() -> None:
    seen: list[int] = []
    with SimCluster(2, latency_s=0.001) as cluster:
        run = cluster.submit(declared(seen, []).graph(), active=False)
        with pytest.raises(RequestTimeout, match=r"within 2 s: (it waits|its tuple tree)"):
            run.ask("items", letter(11), timeout_s=2)
        run.activate()
        run.wait(2)
        assert seen.count(11) == 1, "the spout keeps it, although its client has given up"
        assert run.ask("items", letter(12)) == ["acked"]


def test_a_finite_spout_takes_letters_after_its_end() -> None:
    topology = Topology("t")
    retry = Retry(attempts=1, dead_letters=True)
    seen: list[int] = []
    items = topology.spout("items", Records([Item(1)], type=Item), retry=retry)
    items.shuffle().bolt("sink", Sink(seen))
    items.stream("dead_letters").shuffle().bolt("kept", KeepsLetters([]))
    with SimCluster(3, latency_s=0.001) as cluster:
        run = cluster.submit(topology.graph())
        assert run.wait()
        assert run.ask("items", letter(5)) == ["acked"]
        assert seen == [1, 5]


def test_a_spout_that_was_drained_takes_no_letter() -> None:
    with SimCluster(3, latency_s=0.001) as cluster:
        run = cluster.submit(declared([], []).graph())
        run.drain()
        assert run.wait()
        with pytest.raises(RequestRefused, match="takes no letter any more: its topology ends"):
            run.ask("items", letter(6))


def test_only_a_spout_with_dead_letters_takes_them() -> None:
    with SimCluster(4, latency_s=0.001) as cluster:
        run = cluster.submit(declared([], []).graph())
        with pytest.raises(UnknownComponent, match="spouts with dead letters: items"):
            run.ask("others", letter(5))


class Click(NamedTuple):
    user: str
    at: float


def clicks_then_none() -> Iterator[Click | None]:
    yield from (Click("a", 1.0), Click("a", 25.0))
    while True:
        yield None


class Rows(Written, Bolt[Any, None]):
    def process(self, row: Any) -> None:
        self.seen.append(tuple(row))


@pytest.mark.parametrize("ends", [True, False])
def test_a_letter_is_late_for_windows_that_have_ended_and_delays_no_others(
    ends: bool,
) -> None:
    topology = Topology("windows")
    clicks = [Click("a", 1.0), Click("a", 25.0)] if ends else clicks_then_none
    retry = Retry(attempts=2, dead_letters=True)
    stream = topology.spout("clicks", Records(clicks, type=Click), retry=retry)
    stream.stream("dead_letters").shuffle().bolt("kept", KeepsLetters([]))
    windows = stream.group_by("user").window(tumbling(seconds=10, field="at"), count())
    rows, late = list[Any](), list[Any]()
    windows.shuffle().bolt("rows", Rows(rows))
    windows.late.shuffle().bolt("late", Rows(late))
    early = letter(0)._replace(spout="clicks", record={"user": "a", "at": 2.0})
    with SimCluster(5, latency_s=0.001, check=True) as cluster:
        run = cluster.submit(topology.graph())
        run.wait(5)
        assert rows == [("a", 10.0, 1), ("a", 30.0, 1)][: 2 if ends else 1]
        assert run.ask("clicks", early, timeout_s=30) == ["acked"]
        run.wait(5)
        assert sum(row[-1] for row in late) == 1
        assert rows == [("a", 10.0, 1), ("a", 30.0, 1)][: 2 if ends else 1]
        assert run.snapshot().component("clicks").pending == 0
