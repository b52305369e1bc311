"""A real Kafka cluster: one or more brokers, in KRaft mode or on ZooKeeper."""

from __future__ import annotations

import base64
import signal
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sunshower.dev.jars import KAFKA, KAFKA_ON_ZOOKEEPER
from sunshower.dev.servers import (
    HOST,
    USUAL,
    Servers,
    Upkeep,
    answers,
    kraft,
    on_zookeeper,
    properties,
    write_properties,
)
from sunshower.errors import ServerError, Unobtainable
from sunshower.installed import check_packages


def new_cluster_id() -> str:
    """A random id in Kafka's format; the fixed first letter prevents a leading dash."""
    return "S" + base64.urlsafe_b64encode(uuid.uuid4().bytes)[1:22].decode()


def brokers_seen_from(address: str, timeout_s: float = 5.0) -> set[int]:
    """The ids of all brokers in the metadata of the one at `address`; empty without an answer."""
    check_packages("kafka", "the client of Kafka", "confluent_kafka", error=Unobtainable)
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    try:
        return set(client.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return set()


@dataclass(frozen=True)
class Broker:
    """A broker. It keeps its ports when it is restarted."""

    id: int  # from 1
    ports: Mapping[str, int]  # by listener: PLAINTEXT, CONTROLLER, and the configured ones

    @property
    def name(self) -> str:
        """The name of its process, log and folder."""
        return f"kafka-{self.id}"

    @property
    def address(self) -> str:
        return f"{HOST}:{self.ports['PLAINTEXT']}"


class Kafka(Servers):
    """Brokers that are also controllers; with `zookeeper`, an older Kafka that uses it.

    `port` is the first broker's, the others follow; 0: any free ones. `listeners` adds listeners
    by name with their security protocol; `settings` adds lines to the brokers' files.
    """

    def __init__(
        self,
        brokers: int = 1,
        upkeep: Upkeep = USUAL,
        *,
        port: int = 0,
        zookeeper: str | None = None,
        listeners: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(upkeep)
        self.release = KAFKA_ON_ZOOKEEPER if zookeeper else KAFKA
        self.brokers: tuple[Broker, ...] = ()
        self._count = brokers
        self._wanted = port
        self._zookeeper = zookeeper
        self._listeners = {"PLAINTEXT": "PLAINTEXT", **(listeners or {})}
        self._settings = dict(settings or {})

    @property
    def bootstrap(self) -> str:
        """The value for bootstrap.servers."""
        return self.addresses("PLAINTEXT")

    @property
    def address(self) -> str:
        return self.bootstrap

    def addresses(self, listener: str) -> str:
        """The addresses of another listener."""
        return ",".join(f"{HOST}:{broker.ports[listener]}" for broker in self.brokers)

    def pid(self, broker: int) -> int:
        return self._pids[self.broker(broker).name]

    def broker(self, id: int) -> Broker:
        """The broker with this id. Raises ServerError."""
        if not 1 <= id <= len(self.brokers):
            raise ServerError(f"there is no broker {id}; there are 1 to {len(self.brokers)}")
        return self.brokers[id - 1]

    def kill(self, broker: int) -> None:
        """Kill a broker with SIGKILL; its data stays, and `restart` uses it."""
        self._signal(self.broker(broker).name, signal.SIGKILL)

    def shut_down(self, broker: int) -> None:
        """Shut a broker down with SIGTERM: it first moves partition leadership to others."""
        self._signal(self.broker(broker).name, signal.SIGTERM)

    def pause(self, broker: int) -> None:
        """Stop a broker with SIGSTOP, and wait until it is; its connections stay open."""
        self._signal(self.broker(broker).name, signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        """Continue a paused broker with SIGCONT."""
        self._signal(self.broker(broker).name, signal.SIGCONT)

    def restart(self, *brokers: int) -> None:
        """Start terminated brokers again, and wait until each of them answers."""
        again = [self.broker(broker) for broker in brokers]
        for broker in again:
            self._launch(broker.name, "kafka.Kafka", str(self._file(broker)))
        self._look(f"waiting for {len(again)} of {self._count} brokers to answer")
        self._await([broker.name for broker in again], lambda: self._answer(again))

    def _start(self) -> None:
        self.brokers = tuple(
            Broker(id, {name: self._port_of(name, id) for name in (*self._listeners, "CONTROLLER")})
            for id in range(1, self._count + 1)
        )
        for broker in self.brokers:
            write_properties(self._file(broker), self._properties(broker))
        if not self._zookeeper:
            self._format()
        self.restart(*(broker.id for broker in self.brokers))

    def _port_of(self, listener: str, broker: int) -> int:
        mine = self._wanted and listener == "PLAINTEXT"
        return self._port(self._wanted + broker - 1 if mine else None)

    def _file(self, broker: Broker) -> Path:
        return self.folder / f"{broker.name}.properties"

    def _properties(self, broker: Broker) -> dict[str, str]:
        data = self.folder / broker.name
        common = properties(self._count, data, broker.ports, self._listeners)
        if self._zookeeper:
            mode = on_zookeeper(common, broker.id, self._zookeeper)
        else:
            controllers = {other.id: other.ports["CONTROLLER"] for other in self.brokers}
            mode = kraft(common, broker.id, controllers, self._listeners)
        return mode | self._settings

    def _format(self) -> None:
        """Format the brokers' folders with a cluster id, unless they are formatted."""
        formatted = {file.parent.name for file in self.folder.glob("kafka-*/meta.properties")}
        if formatted == {broker.name for broker in self.brokers}:
            return
        if formatted:
            raise ServerError(
                f"{self.folder} holds the data of {len(formatted)} brokers, and {self._count} are "
                "wanted: their number is fixed. Take as many as before, or another folder."
            )
        cluster = new_cluster_id()
        names = []
        for broker in self.brokers:
            names.append(f"format-{broker.id}")
            arguments = ("format", "-t", cluster, "-c", str(self._file(broker)))
            self._launch(names[-1], "kafka.tools.StorageTool", *arguments)
        self._look("formatting the folders of the brokers")
        self._run(names)

    def _answer(self, brokers: Iterable[Broker]) -> bool:
        ids = {broker.id for broker in brokers}
        return all(
            answers(broker.ports["PLAINTEXT"]) and ids <= brokers_seen_from(broker.address)
            for broker in brokers
        )
