"""Brokers and topics read from their nodes in ZooKeeper: missing nodes, and invalid values."""

from __future__ import annotations

import pytest

from sunshower.clock import ManualClock
from sunshower.errors import KafkaError, KafkaUnreachable, StoreUnreachable, UnknownTopic
from sunshower.kafka.options import modulo
from sunshower.kafka.partitions.ports import Partition, RefreshedDirectory
from sunshower.kafka.zookeeper.options import ZooKeeperDirectory
from sunshower.state.tree import MemoryForest, MemoryTree
from tests.kafka.directories import publish, stand_up, write


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree(MemoryForest())


def numbers(partitions: tuple[Partition, ...]) -> list[int]:
    return [partition.number for partition in partitions]


def test_an_unavailable_broker_moves_no_partition_to_another_task(tree: MemoryTree) -> None:
    stand_up(tree, 1)
    # Broker 2 is unavailable, and partition 3 has no leader.
    publish(tree, "t", {0: 1, 1: 2, 2: 1, 3: -1, 4: 1})
    directory = ZooKeeperDirectory(tree)
    assert numbers(directory.partitions("t")) == [0, 1, 2, 3, 4]
    assert numbers(modulo(directory.partitions("t"), 3, 1)) == [1, 4]
    address = "outer:9001"
    assert [*directory.leaders("t").values()] == [address, None, address, None, address]


def test_partitions_are_in_the_order_of_their_numbers(tree: MemoryTree) -> None:
    publish(tree, "t", dict.fromkeys(range(11), 1))
    assert numbers(ZooKeeperDirectory(tree).partitions("t")) == [*range(11)]


def test_a_leader_that_moves_is_found_at_its_new_address(tree: MemoryTree) -> None:
    stand_up(tree, 1)
    stand_up(tree, 2)
    publish(tree, "t", {0: 1})
    directory = ZooKeeperDirectory(tree)
    assert directory.leaders("t") == {Partition("t", 0): "outer:9001"}
    publish(tree, "t", {0: 2})
    assert directory.leaders("t") == {Partition("t", 0): "outer:9002"}
    tree.delete("/brokers/topics/t/partitions/0/state")
    assert directory.leaders("t") == {Partition("t", 0): None}


@pytest.mark.parametrize(
    ("listener", "address"),
    [("INNER", "inner:9001"), ("SASL_SSL", "inner:9001"), ("PLAINTEXT", "outer:9001")],
)
def test_the_address_is_that_of_the_chosen_listener(
    tree: MemoryTree, listener: str, address: str
) -> None:
    stand_up(tree, 1)
    assert ZooKeeperDirectory(tree, listener=listener).brokers() == {1: address}


def test_host_and_port_count_only_where_there_are_no_endpoints(tree: MemoryTree) -> None:
    stand_up(tree, 1, endpoints=[], host="old", port=9)
    stand_up(tree, 2, endpoints=["OTHER://new:9"], host="old", port=9)
    stand_up(tree, 3, endpoints=[])
    assert ZooKeeperDirectory(tree).brokers() == {1: "old:9"}


def test_addresses_for_clients_are_those_of_all_brokers_that_run(tree: MemoryTree) -> None:
    directory = ZooKeeperDirectory(tree)
    with pytest.raises(KafkaUnreachable, match="no /brokers/topics"):
        directory.bootstrap()
    publish(tree, "t", {0: 1})
    with pytest.raises(KafkaUnreachable, match="no broker is registered at /brokers/ids"):
        directory.bootstrap()
    stand_up(tree, 1)
    stand_up(tree, 2)
    assert directory.bootstrap() == "outer:9001,outer:9002"
    with pytest.raises(KafkaError, match=r"has the listener 'SSL'.*INNER://inner:9001"):
        ZooKeeperDirectory(tree, listener="SSL").bootstrap()


def test_kafka_may_be_below_a_root_node(tree: MemoryTree) -> None:
    publish(tree, "t", {0: 1}, root="/kafka")
    assert numbers(ZooKeeperDirectory(tree, root="/kafka").partitions("t")) == [0]
    with pytest.raises(KafkaUnreachable, match=r"no /brokers/topics.*`root`"):
        ZooKeeperDirectory(tree).partitions("t")


def test_internal_topics_of_kafka_are_not_listed(tree: MemoryTree) -> None:
    for topic in ("t", "__consumer_offsets", "__transaction_state", "__mine"):
        publish(tree, topic, {0: 1})
    assert ZooKeeperDirectory(tree).topics() == {"t", "__mine"}


@pytest.mark.parametrize("value", [["no"], {"partitions": {"a": []}}, {"partitions": 3}])
def test_a_node_without_valid_partitions_is_an_error_with_its_path(
    tree: MemoryTree, value: object
) -> None:
    write(tree, "/brokers/topics/t", value)
    with pytest.raises(KafkaError, match="/brokers/topics/t"):
        ZooKeeperDirectory(tree).partitions("t")


def test_a_node_without_json_is_an_error_with_its_path(tree: MemoryTree) -> None:
    tree.create("/brokers/topics/t", b"{broken")
    with pytest.raises(KafkaError, match=r"/brokers/topics/t .* is not a JSON object: b'{broken'"):
        ZooKeeperDirectory(tree).partitions("t")


# ---- the cache ----------------------------------------------------------------------------------


class UnreliableTree:
    """A tree that can be made unavailable."""

    def __init__(self, tree: MemoryTree) -> None:
        self._tree = tree
        self.is_unavailable = False

    def __getattr__(self, name: str) -> object:
        if self.is_unavailable:
            raise StoreUnreachable("unavailable")
        return getattr(self._tree, name)


def test_partitions_are_read_again_when_they_are_old_and_after_an_error(tree: MemoryTree) -> None:
    clock = ManualClock()
    directory = RefreshedDirectory(ZooKeeperDirectory(tree), clock)
    publish(tree, "t", {0: 1})
    assert numbers(directory.partitions("t")) == [0]
    publish(tree, "t", {0: 1, 1: 1})
    clock.advance(59.9)
    assert numbers(directory.partitions("t")) == [0]
    clock.advance(0.1)
    assert numbers(directory.partitions("t")) == [0, 1]
    publish(tree, "t", {0: 1, 1: 1, 2: 1})
    assert numbers(directory.partitions("t")) == [0, 1]
    directory.refresh()
    assert numbers(directory.partitions("t")) == [0, 1, 2]


def test_the_last_answer_is_used_while_zookeeper_is_unavailable(tree: MemoryTree) -> None:
    clock = ManualClock()
    unreliable = UnreliableTree(tree)
    uncached = ZooKeeperDirectory(unreliable)  # type: ignore[arg-type]
    directory = RefreshedDirectory(uncached, clock, every_s=1)
    publish(tree, "t", {0: 1})
    assert numbers(directory.partitions("t")) == [0]
    assert directory.topics() == {"t"}
    unreliable.is_unavailable = True
    clock.advance(2)
    directory.refresh()
    assert numbers(directory.partitions("t")) == [0]
    with pytest.raises(KafkaUnreachable, match="/brokers/ids cannot be used: unavailable"):
        directory.leaders("t")  # has no cached answer
    unreliable.is_unavailable = False
    tree.delete("/brokers/topics/t/partitions/0/state")
    tree.delete("/brokers/topics/t/partitions/0")
    tree.delete("/brokers/topics/t/partitions")
    tree.delete("/brokers/topics/t")
    clock.advance(2)
    with pytest.raises(UnknownTopic):
        directory.partitions("t")
