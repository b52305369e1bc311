"""Writes the nodes by which brokers and topics are published in ZooKeeper into any tree."""

from __future__ import annotations

import json

from sunshower.state.tree import Tree


def publish(tree: Tree, topic: str, leaders: dict[int, int], root: str = "") -> None:
    """Write a topic with its partitions and the broker that leads each."""
    path = f"{root}/brokers/topics/{topic}"
    replicas = {str(number): [1, 2] for number in leaders}
    write(tree, path, {"version": 3, "topic_id": "x", "partitions": replicas})
    for number, leader in leaders.items():
        state = {"controller_epoch": 4, "leader": leader, "isr": [1], "leader_epoch": 1}
        write(tree, f"{path}/partitions/{number}/state", state)


def stand_up(tree: Tree, broker: int, root: str = "", **other: object) -> None:
    """Register a broker; its port is 9000 plus its id."""
    here = {
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "INNER": "SASL_SSL"},
        "endpoints": [f"INNER://inner:{9000 + broker}", f"PLAINTEXT://outer:{9000 + broker}"],
        "host": None,
        "port": -1,
        "version": 5,
    }
    tree.create(f"{root}/brokers/ids/{broker}", json.dumps(here | other).encode(), ephemeral=True)


def write(tree: Tree, path: str, value: object) -> None:
    """Create or set a node with JSON."""
    text = json.dumps(value).encode()
    if tree.get(path) is None:
        tree.create(path, text)
    else:
        tree.set(path, text)
