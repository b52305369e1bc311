"""Lists topics, partitions and leaders from ZooKeeper, where brokers up to Kafka 3 publish them.

/brokers/ids/<id>                               a broker's address; ephemeral
/brokers/topics/<topic>                         its partitions, each with the ids of its replicas
/brokers/topics/<topic>/partitions/<p>/state    the id of the leading broker; −1: none

Storm's reader omits partitions whose broker is down, which reassigns all later ones
(org/apache/storm/kafka/DynamicBrokersReader.java). Here the topic's node alone determines the
partitions; their leaders are a separate question.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from sunshower.errors import KafkaError, KafkaUnreachable, UnknownTopic
from sunshower.kafka.partitions.ports import INTERNAL_TOPICS, Partition
from sunshower.kafka.partitions.store_errors import using
from sunshower.state.tree import Tree


class ZooKeeperDirectory:
    """Implements the port `Directory`. It owns the tree: closing this closes that.

    `root` is Kafka's node, as in the brokers' `zookeeper.connect`. For brokers with several
    listeners, `listener` selects the address.
    """

    def __init__(self, tree: Tree, *, root: str = "", listener: str = "PLAINTEXT") -> None:
        self._tree = tree
        self._brokers = f"{root.rstrip('/')}/brokers"
        self._listener = listener

    def topics(self) -> frozenset[str]:
        path = f"{self._brokers}/topics"
        with using(path):
            if self._tree.get(path) is None:
                raise KafkaUnreachable(
                    f"no Kafka is registered in this ZooKeeper: there is no {path}. Is it "
                    "below another node (`root`), or a Kafka without ZooKeeper?"
                )
            return frozenset(self._tree.children(path)) - INTERNAL_TOPICS

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        path = f"{self._brokers}/topics/{topic}"
        found = self._read(path)
        if found is None:
            self.topics()  # raises if there is no Kafka at all
            raise UnknownTopic(
                f"there is no topic {topic!r}: ZooKeeper has no {path}. Create it, or correct its "
                "name"
            )
        match found:
            case {"partitions": dict(replicas)} if all(number.isdecimal() for number in replicas):
                return tuple(Partition(topic, number) for number in sorted(map(int, replicas)))
        raise KafkaError(f"{path} in ZooKeeper does not contain the partitions of a topic: {found}")

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        nodes = {topic: self._read(f"{self._brokers}/topics/{topic}") for topic in topics}
        return {
            topic: str(node.get("topic_id", ""))
            for topic, node in nodes.items()
            if node is not None
        }

    def leaders(self, topic: str) -> dict[Partition, str | None]:
        brokers = self.brokers()
        return {
            one: brokers.get(leader) if (leader := self._leader(one)) is not None else None
            for one in self.partitions(topic)
        }

    def brokers(self) -> dict[int, str]:
        """The addresses of the running brokers, by id: host:port."""
        path = f"{self._brokers}/ids"
        with using(path):
            ids = self._tree.children(path)
        found = {id: self._read(f"{path}/{id}") for id in ids}
        return {
            int(id): address
            for id, broker in found.items()
            if broker is not None and (address := _address(broker, self._listener))
        }

    def bootstrap(self) -> str:
        """Raises KafkaUnreachable if no broker is registered, KafkaError if none has the
        listener."""
        if found := self.brokers():
            return ",".join(address for _, address in sorted(found.items()))
        self.topics()  # raises if there is no Kafka at all
        path = f"{self._brokers}/ids"
        with using(path):
            ids = self._tree.children(path)
        if not ids:
            raise KafkaUnreachable(f"no broker is registered at {path}: none is running")
        offered = {id: (self._read(f"{path}/{id}") or {}).get("endpoints") for id in ids}
        raise KafkaError(
            f"no broker at {path} has the listener {self._listener!r}. Give `listener` one of "
            f"theirs: {offered}"
        )

    def close(self) -> None:
        self._tree.close()

    def _leader(self, partition: Partition) -> int | None:
        topic, number = partition
        state = self._read(f"{self._brokers}/topics/{topic}/partitions/{number}/state")
        leader = (state or {}).get("leader")
        return leader if isinstance(leader, int) and leader >= 0 else None

    def _read(self, path: str) -> dict[str, object] | None:
        """The JSON object of a node; None if there is no such node."""
        with using(path):
            node = self._tree.get(path)
        if node is None:
            return None
        try:
            found = json.loads(node.value)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise KafkaError(f"{path} in ZooKeeper is no JSON object: {node.value[:80]!r}")
        return found


def _address(broker: dict[str, object], listener: str) -> str | None:
    """The address of a listener, by its name or protocol; older brokers have `host`, `port`."""
    match broker.get("listener_security_protocol_map"):
        case dict(protocols):
            pass
        case _:
            protocols = {}
    endpoints = broker.get("endpoints")
    for wanted in (listener, *(name for name, of in protocols.items() if of == listener)):
        for endpoint in endpoints if isinstance(endpoints, list) else []:
            name, _, address = str(endpoint).partition("://")
            if name == wanted:
                return address
    host, port = broker.get("host"), broker.get("port")
    if not endpoints and isinstance(host, str) and isinstance(port, int) and port > 0:
        return f"{host}:{port}"
    return None
