"""Each mutated stored value is either read, or refused with one of Sunshower's errors."""

from __future__ import annotations

import json
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from sunshower import Bolt, Context
from sunshower.errors import SunshowerError
from sunshower.kafka.exactly_once.deduplicate import deduplicate
from sunshower.kafka.partitions.ports import Committed, Partition
from sunshower.kafka.zookeeper.options import (
    PlainLayout,
    StoredOffsets,
    StormLayout,
    ZooKeeperDirectory,
)
from sunshower.state import MemoryState
from sunshower.state.backing import Mark
from sunshower.state.tree import MemoryForest, MemoryTree
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import Place, StateKind
from sunshower.trident.coordination.transactional_log import StoredProgress
from sunshower.trident.spouts.partition_emitters import PartitionLog
from tests.kafka.directories import publish, stand_up
from tests.security.hostile import mutated_bytes, mutated_messagepack, mutated_value

MUTATIONS = 2_500  # of each kind of value, 22,500 in total
GROWTH_MAX = 256 << 20
Read = Callable[[], object]


def mutated(value: bytes, dice: random.Random) -> bytes:
    """Return the value with changed bytes or, if it is JSON or MessagePack, changed parts."""
    if dice.random() < 0.5:
        return mutated_bytes(value, dice)
    try:
        changed = mutated_value(json.loads(value), dice)
    except ValueError:
        try:
            return mutated_messagepack(value, dice)
        except (ValueError, TypeError, msgpack.exceptions.ExtraData):
            return mutated_bytes(value, dice)
    return json.dumps(changed, default=repr).encode()


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Assert that the block takes little memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < GROWTH_MAX


class Keep(Bolt[Any, None]):
    state: Any = None

    def process(self, record: Any) -> None:
        self.state = {"count": [record, (1, 2)]}

    def snapshot(self) -> Any:
        return self.state

    def restore(self, state: Any) -> None:
        self.state = state


def deduplicated(tree: MemoryTree) -> object:
    bolt = deduplicate(lambda record: record, Keep(), store=lambda: tree)
    bolt.prepare(Context("shop", "count", 1, 0, 1))
    for key in ("a", ("b", 7), b"c"):
        bolt.process(key)
    bolt.flush()
    return bolt


def progress(tree: MemoryTree) -> object:
    stored = StoredProgress(tree, "/batches", ("a",), "words")
    stored.begin({stored.current: 0, stored.current + 1: 4}, {stored.current: 2})
    stored.committed(stored.current)
    return stored


def log(tree: MemoryTree) -> object:
    partition_log = PartitionLog(tree, "/log", "0")
    last = partition_log.latest()
    partition_log.keep(Attempt(max(last, 0) + 1, 0, 1), {"from": 1, "to": [2, "x"]})
    return partition_log[last] if last > 0 else None


def storm_offsets(tree: MemoryTree) -> object:
    offsets = StoredOffsets(tree, StormLayout("/kafka", "words", "words-1-99", "words"))
    committed = offsets.read([Partition("t", 0)])
    offsets.write({Partition("t", 0): Committed(4217)})
    return committed


def plain_offsets(tree: MemoryTree) -> object:
    offsets = StoredOffsets(tree, PlainLayout("g"))
    committed = offsets.read([Partition("t", 0)])
    offsets.write({Partition("t", 0): Committed(4217)})
    return committed


def brokers(tree: MemoryTree) -> object:
    if tree.get("/brokers/ids/1") is None:
        stand_up(tree, 1)
        publish(tree, "t", {0: 1, 1: -1})
    directory = ZooKeeperDirectory(tree)
    return directory.brokers(), directory.partitions("t"), directory.leaders("t")


@pytest.mark.parametrize(
    "use", [deduplicated, progress, log, storm_offsets, plain_offsets, brokers]
)
@pytest.mark.timeout(120)
def test_mutated_nodes_of_a_tree_are_read_or_refused(use: Callable[[MemoryTree], object]) -> None:
    dice, whole = random.Random(use.__name__), MemoryForest()
    use(MemoryTree(whole))
    original = {path: node for path, node in whole.nodes.items() if node.value}
    assert original
    read = 0
    with bounded_memory():
        for _ in range(MUTATIONS):
            forest = MemoryForest()
            forest.nodes.update({path: replace(node) for path, node in whole.nodes.items()})
            path = dice.choice([*original])
            forest.nodes[path].value = mutated(original[path].value, dice)
            with suppress(SunshowerError):
                use(MemoryTree(forest))
                read += 1
    assert 0 < read < MUTATIONS, "some values are read, and some refused"


@pytest.mark.parametrize("kind", StateKind)
@pytest.mark.timeout(120)
def test_mutated_values_of_states_are_read_or_refused(kind: StateKind) -> None:
    dice, read = random.Random(kind.value), 0
    place = Place("words", "counts", 0, 1)
    with bounded_memory():
        for number in range(MUTATIONS):
            factory = MemoryState(kind)
            state = factory.make(place)
            state.begin_commit(Attempt(1, 0, 1))
            state.multi_put(["a"], [{"n": [1, (2, "x")], "": None}])
            state.commit(Attempt(1, 0, 1))
            (home,) = factory.shelf.marks
            parts = [*factory.shelf.marks[home], factory.shelf.values[home]['"a"']]
            parts[number % 3] = text(mutated(parts[number % 3].encode(), dice))
            factory.shelf.marks[home] = Mark(*parts[:2])
            factory.shelf.values[home]['"a"'] = parts[2]
            with suppress(SunshowerError):
                again = factory.make(place)
                again.begin_commit(Attempt(2, 0, 1))
                again.multi_update(["a"], [lambda value: [value]])
                again.commit(Attempt(2, 0, 1))
                list(factory.items())
                read += 1
    assert 0 < read < MUTATIONS, "some values are read, and some refused"


def text(data: bytes) -> str:
    """Return the data as text. A store returns no invalid UTF-8, so it is replaced."""
    return data.decode(errors="replace")
