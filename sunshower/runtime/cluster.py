"""The port: what a place that runs topologies must be able to do, real or simulated."""

from __future__ import annotations

from typing import Any, Protocol

from sunshower.runtime.metrics import Snapshot
from sunshower.runtime.plan import Layout, Plan
from sunshower.topologies.graph import Graph


class Run(Protocol):
    """A topology that was submitted."""

    @property
    def plan(self) -> Plan:
        """Which task runs on which worker."""

    def snapshot(self) -> Snapshot:
        """All counters, as of now (a fraction of a second old). Raises ClusterError."""

    def finished(self) -> bool:
        """Whether the spouts are exhausted and everything is processed.

        Raises TopologyFailed when the topology has given up, ClusterError when it is gone.
        """

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until finished, `timeout_s` at most. Returns and raises as `finished`."""

    def results(self, component: str) -> list[Any]:
        """`result()` of each task of a component."""

    def kill_worker(self, worker: int) -> int:
        """End a worker's process with SIGKILL, as a crash would. Returns its process id."""

    def kill_master(self) -> int:
        """End the master's process likewise. Returns its process id."""

    def drain(self) -> None:
        """Let the spouts emit no more; what is open is finished."""

    def stop(self) -> None:
        """Close every task and end every worker. A second call does nothing.

        What close() and cleanup() raise is logged: all others are closed the same.
        """


class Cluster(Protocol):
    """Where topologies run."""

    def submit(self, graph: Graph, layout: Layout = Layout.PACK) -> Run:
        """Start a topology. Raises ClusterError when that cannot be done."""
