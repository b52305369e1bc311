"""Which partitions there are, as brokers publish it in a ZooKeeper: Kafka up to 3.

/brokers/ids/<id>                               where a broker answers; gone while it is away
/brokers/topics/<topic>                         its partitions, each with the ids of its replicas
/brokers/topics/<topic>/partitions/<p>/state    which broker leads it; −1: none

Storm's reader leaves out a partition whose broker is away, and all after it change hands
(org/apache/storm/kafka/DynamicBrokersReader.java). Here partitions are what the topic's own node
says, and who leads them is another question.
"""

from __future__ import annotations

import json

from sunshower.errors import KafkaError, KafkaUnreachable, UnknownTopic
from sunshower.kafka.over_store import using
from sunshower.kafka.partitions import INTERNAL_TOPICS, Partition
from sunshower.stores.tree import Tree


class ZooKeeperDirectory:
    """See the port `Directory`. It owns the tree: closing this closes that.

    `root` is the node below which Kafka lives, as in the brokers' `zookeeper.connect`; of brokers
    that listen at several addresses that of `listener` is told.
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
                    f"no Kafka has published itself in this ZooKeeper: there is no {path}. Is it "
                    "below another node (`root`), or a Kafka without ZooKeeper?"
                )
            return frozenset(self._tree.children(path)) - INTERNAL_TOPICS

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        path = f"{self._brokers}/topics/{topic}"
        found = self._read(path)
        if found is None:
            self.topics()  # raises, if Kafka is not there at all
            raise UnknownTopic(
                f"there is no topic {topic!r}: ZooKeeper has no {path}. Create it, or correct its "
                "name"
            )
        match found:
            case {"partitions": dict(replicas)} if all(number.isdecimal() for number in replicas):
                return tuple(Partition(topic, number) for number in sorted(map(int, replicas)))
        raise KafkaError(f"{path} in ZooKeeper does not tell the partitions of a topic: {found}")

    def leaders(self, topic: str) -> dict[Partition, str | None]:
        brokers = self.brokers()
        return {
            one: brokers.get(leader) if (leader := self._leader(one)) is not None else None
            for one in self.partitions(topic)
        }

    def brokers(self) -> dict[int, str]:
        """Where those that are there answer, by id: host:port."""
        path = f"{self._brokers}/ids"
        with using(path):
            ids = self._tree.children(path)
        found = {id: self._read(f"{path}/{id}") for id in ids}
        return {
            int(id): address
            for id, broker in found.items()
            if broker is not None and (address := _address(broker, self._listener))
        }

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
    """Of one listener, by its name, or by its security protocol; `host` and `port` are older."""
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
