"""Ray nodes in network namespaces of this machine, and a router between them that injects faults.

node 0 (head, 10.89.0.2) ──┐
node 1 (10.89.1.2) ────────┼── the router: silently drops packets that a blackhole rule matches,
node 2 (10.89.2.2) ────────┘   or sends them through `relay.py`, which delays and loses packets
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.measure import BenchmarkError, MissingRequirement
from benchmarks.network import relay

NODES = 3
ROOT = Path(__file__).parents[2]
_TABLE = "89"  # of the routes through the relay


class Network:
    """Namespaces and links. Raises MissingRequirement if the user may not create them."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.router = f"{prefix}r"  # its namespace

    def __enter__(self) -> Network:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes in the namespaces, and remove them."""
        for name in (*map(self.node, range(NODES)), self.router):
            for _ in range(3):
                for pid in pids(name):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def node(self, number: int) -> str:
        """The namespace of a node."""
        return f"{self._prefix}{number}"

    @contextmanager
    def cut(self, first: int, other: int) -> Iterator[None]:
        """Drop all packets between two nodes."""
        self._rules("add", first, other)
        yield
        self._rules("del", first, other)

    @contextmanager
    def isolated(self, node: int) -> Iterator[None]:
        """Drop all packets between a node and all others."""
        with ExitStack() as stack:
            for other in set(range(NODES)) - {node}:
                stack.enter_context(self.cut(node, other))
            yield

    def unplug(self, node: int) -> None:
        """Take a node's link down permanently."""
        _ip("-n", self.node(node), "link", "set", "eth0", "down")

    @contextmanager
    def slow(self, node: int) -> Iterator[None]:
        """Delay and lose packets between a node and all others."""
        router = ["ip", "netns", "exec", self.router]
        with subprocess.Popen(
            [*router, sys.executable, "-m", relay.__name__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            if process.stdout.readline() != relay.READY:
                raise BenchmarkError("the relay has not started")
            _ip("-n", self.router, "link", "set", relay.DEVICE, "up")
            _ip("-n", self.router, "route", "add", "default", "dev", relay.DEVICE, "table", _TABLE)
            for end in range(NODES):  # packets from the relay arrive on its own device
                which = ("to" if end != node else "from", address(node))
                _ip("-n", self.router, "rule", "add", *which, "iif", f"n{end}", "lookup", _TABLE)
            yield  # the relay ends when its input is closed, which removes its device and routes

    def _rules(self, action: str, first: int, other: int) -> None:
        for source, target in ((first, other), (other, first)):
            ends = ("from", address(source), "to", address(target))
            _ip("-n", self.router, "rule", action, *ends, "blackhole")

    def _make(self) -> None:
        try:
            _ip("netns", "add", self.router)
        except (BenchmarkError, OSError) as error:
            raise MissingRequirement(f"it needs root, iproute2 and namespaces: {error}") from error
        forward = ["sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0"]
        _call("ip", "netns", "exec", self.router, *forward)
        for number in range(NODES):
            node, end = self.node(number), f"n{number}"
            _ip("netns", "add", node)
            _ip("link", "add", "eth0", "netns", node, "type", "veth",
                "peer", "name", end, "netns", self.router)  # fmt: skip
            _ip("-n", self.router, "addr", "add", f"10.89.{number}.1/24", "dev", end)
            _ip("-n", self.router, "link", "set", end, "up")
            _ip("-n", node, "addr", "add", f"{address(number)}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                _ip("-n", node, "link", "set", link, "up")
            _ip("-n", node, "route", "add", "default", "via", f"10.89.{number}.1")


ROUTER = "10.89.0.1"  # an address of the router that all nodes reach, even a node that is cut off


def address(node: int) -> str:
    """The address of a node."""
    return f"10.89.{node}.2"


def pids(namespace: str) -> list[int]:
    """The processes in a namespace."""
    command = ["ip", "netns", "pids", namespace]
    completed = subprocess.run(command, check=False, capture_output=True, text=True)
    return [int(word) for word in completed.stdout.split()]


def _ip(*words: str) -> None:
    _call("ip", *words)


def _call(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchmarkError(f"{' '.join(words)}: {done.stderr.strip()}")
