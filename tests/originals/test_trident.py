"""Trident's metadata in ZooKeeper: Storm's classes read what is written here, and go on with it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from sunshower.dev.zookeeper import ZooKeeper
from sunshower.state.tree import Tree
from sunshower.state.zookeeper_tree import ZooKeeperTree
from sunshower.trident.coordination.transactional_log import StoredProgress, TransactionalLog
from sunshower.trident.spouts.partition_emitters import PartitionLog
from tests.originals.programs import Program


class Store:
    """A root in ZooKeeper, for a spout `words`: here, and of Storm."""

    def __init__(self, storm: Program, zookeeper: ZooKeeper, tree: Tree) -> None:
        self.storm, self.tree = storm, tree
        self.port = int(zookeeper.connect.rpartition(":")[2])
        self.root = f"/transactional-{uuid.uuid4().hex[:8]}"

    def rotating(self, *calls: list[Any], folder: str = "topic@0") -> list[Any]:
        """Calls of a new RotatingTransactionalState of the emitter."""
        arguments = [self.port, self.root, "user", "words", folder]
        return self.storm.run("RotatingTransactionalState", arguments, calls)

    def coordinator(self, *calls: list[Any]) -> list[Any]:
        """Calls of a new TransactionalState of the coordinator."""
        arguments = [self.port, self.root, "coordinator", "words"]
        return self.storm.run("TransactionalState", arguments, calls)

    def log(self) -> TransactionalLog:
        return TransactionalLog(self.tree, f"{self.root}/words/user/topic@0")


@pytest.fixture
def store(storm: Program, zookeeper: ZooKeeper) -> Iterator[Store]:
    tree = ZooKeeperTree(zookeeper.connect)
    yield Store(storm, zookeeper, tree)
    tree.close()


@pytest.mark.parametrize("seed", range(3))
def test_each_continues_the_log_of_the_other(store: Store, seed: int) -> None:
    random, values = Random(seed), dict[int, Any]()
    for _ in range(8):
        calls, own = list[list[Any]](), store.log()
        is_storms = random.random() < 0.5
        for _ in range(random.randrange(1, 5)):
            txid = random.randrange(1, 12)
            if random.random() < 0.7:
                values[txid] = {"offset": random.randrange(99), "of": ["topic", None, 1.5]}
                calls.append(["override", txid, values[txid]])
                if not is_storms:
                    own.override(txid, values[txid])
            else:
                values = {key: value for key, value in values.items() if key >= txid}
                calls.append(["cleanup", txid])
                if not is_storms:
                    own.cleanup_before(txid)
        if is_storms:
            store.rotating(*calls)
        last = values[max(values)] if values else None
        before = {txid: max((key for key in values if key < txid), default=0) for txid in range(14)}
        theirs = store.rotating(["last"], *(["previous", txid] for txid in before))
        assert theirs == [last, *(values.get(key) for key in before.values())]
        ours = store.log()
        own_keys = ours.keys()
        assert {key: ours.get(key) for key in own_keys} == values
        assert [ours.previous(txid) for txid in before] == theirs[1:]


def test_each_continues_the_progress_of_the_other(store: Store) -> None:
    def progress() -> StoredProgress:
        return StoredProgress(store.tree, store.root, ["words"], "topology")

    ours = progress()
    ours.committed(6)
    ours.begin({7: 2, 8: 0})
    nodes = [["get", "currtx"], ["get", "currattempts"]]
    assert store.coordinator(*nodes) == [7, {"7": 2, "8": 0}]
    store.coordinator(["set", "currtx", 9], ["set", "currattempts", {"9": 4}])
    assert (progress().current, progress().attempts) == (9, {9: 4})


def test_positions_that_storm_has_stored_are_read(store: Store) -> None:
    """What is stored here says by which attempt, which Storm does not read: see FIDELITY.md."""
    metadata = {"firstOffset": 5, "lastOffset": 9}
    store.rotating(["override", 7, metadata], ["override", 8, None])
    log = PartitionLog(store.tree, f"{store.root}/words/user", "topic@0")
    assert log.before(9) == metadata
