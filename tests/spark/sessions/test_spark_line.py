"""Who is next for a slot of Spark: nobody's many batches keep another's few waiting."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sunshower.spark_integration.sessions.slot_queue import Line
from sunshower.spark_integration.sessions.spark_port import BatchInfo


@dataclass
class Waiting:
    batch: BatchInfo


def line(*topologies: str) -> Line[Waiting]:
    found = Line[Waiting]()
    for number, topology in enumerate(topologies):
        found.put(Waiting(BatchInfo(str(number), 1, topology=topology)))
    return found


def served(found: Line[Waiting]) -> Waiting:
    job = found.next()
    assert job is not None
    return job


def test_of_one_topology_who_came_first_is_first() -> None:
    found = line("a", "a", "a")
    assert [served(found).batch.id for _ in range(3)] == ["0", "1", "2"]


def test_who_has_fewer_at_spark_is_next() -> None:
    found = line("a", "a", "a", "a", "b", "b")
    first = [served(found) for _ in range(4)]
    assert [one.batch.topology for one in first] == ["a", "b", "a", "b"]
    found.put(Waiting(BatchInfo("6", 1, topology="b")))
    for one in first[1::2]:
        found.left(one)
    assert served(found).batch.topology == "b"


def test_who_leaves_twice_was_served_once() -> None:
    found = line("a", "a", "a", "b")
    first, other = served(found), served(found)
    assert (first.batch.topology, other.batch.topology) == ("a", "b")
    assert [found.left(other) for _ in range(2)] == [True, False]
    found.put(Waiting(BatchInfo("4", 1, topology="b")))
    assert [served(found).batch.topology for _ in range(2)] == ["b", "a"]


def test_when_nothing_waits_any_more_all_are_told_the_end() -> None:
    found = line("a")
    found.end()
    assert not found.put(Waiting(BatchInfo("1", 1)))
    assert served(found).batch.id == "0"
    assert (found.next(), found.next()) == (None, None)


def test_who_waits_is_woken() -> None:
    found = line()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(found.next)
        found.put(Waiting(BatchInfo("0", 1)))
        job = waiting.result(30.0)
        assert job is not None
        ended = pool.submit(found.next)
        found.end()
        assert ended.result(30.0) is None
