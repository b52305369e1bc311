"""Settings of servers in Java, and of a broker: small, short intervals, one broker may be lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sunshower.dev.ports import HOST

_QUICK = {
    "auto.create.topics.enable": "false",  # an unknown topic is an error
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.retention.check.interval.ms": "1000",  # deletes and compacts soon
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "log.segment.delete.delay.ms": "1000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "4",
    "leader.imbalance.check.interval.seconds": "5",
}
_SESSION_MS = "6000"  # a broker without a heartbeat for so long is removed


def write_properties(file: Path, settings: Mapping[str, object]) -> None:
    """Write the settings of a Java server, one a line."""
    lines = [f"{key}={value}\n" for key, value in settings.items()]
    file.write_text("".join(lines), encoding="utf-8")


def properties(
    brokers: int,
    data: Path,
    ports: Mapping[str, int],
    protocols: Mapping[str, str],
) -> dict[str, str]:
    """The settings of both kinds of broker; ports and security protocols are by listener."""
    listeners = ",".join(f"{name}://{HOST}:{ports[name]}" for name in protocols)
    safe = str(min(brokers, 2))
    return _QUICK | {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": _map(protocols),
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data),
        "default.replication.factor": str(min(brokers, 3)),
        "offsets.topic.replication.factor": str(min(brokers, 3)),
        "transaction.state.log.replication.factor": str(min(brokers, 3)),
        "transaction.state.log.min.isr": safe,
        "min.insync.replicas": safe,
    }


def kraft(
    common: Mapping[str, str],
    broker: int,
    controllers: Mapping[int, int],
    protocols: Mapping[str, str],
) -> dict[str, str]:
    """Settings of a KRaft broker and controller; `controllers` are all their ports, by id."""
    voters = ",".join(f"{id}@{HOST}:{port}" for id, port in controllers.items())
    return {
        **common,
        "process.roles": "broker,controller",
        "node.id": str(broker),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{common['listeners']},CONTROLLER://{HOST}:{controllers[broker]}",
        "listener.security.protocol.map": _map({**protocols, "CONTROLLER": "PLAINTEXT"}),
        "broker.session.timeout.ms": _SESSION_MS,
        "broker.heartbeat.interval.ms": "1000",
        "metadata.max.idle.interval.ms": "5000",  # less work while idle
    }


def on_zookeeper(common: Mapping[str, str], broker: int, connect: str) -> dict[str, str]:
    """Settings of a broker that registers itself and its topics in ZooKeeper."""
    return {
        **common,
        "broker.id": str(broker),
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": _SESSION_MS,
    }


def _map(protocols: Mapping[str, str]) -> str:
    return ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())
