"""The port: what a place that runs topologies must be able to do, real or simulated."""

from __future__ import annotations

from typing import Any, Protocol

from sunshower.runtime.havoc import Havoc
from sunshower.runtime.history import Entry
from sunshower.runtime.lifecycle import KillReport
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

    def pause_worker(self, worker: int) -> None:
        """Stop a worker's process where it stands: it neither works nor answers until resumed."""

    def resume_worker(self, worker: int) -> None:
        """Let it go on where it stood. One that was killed meanwhile is left alone."""

    def pause_master(self) -> None:
        """The same for the master. What asks it something meanwhile waits."""

    def resume_master(self) -> None:
        """Let it go on."""

    def nodes(self) -> dict[str, list[int]]:
        """The workers on each machine."""

    def kill_node(self, node: str) -> list[int]:
        """SIGKILL for every process of this run on a machine, the master's if it is there.

        Returns the process ids. Raises ClusterError for a machine that cannot be reached.
        """

    def disturb(self, havoc: Havoc) -> None:
        """From now on these disturbances, instead of those before; `Havoc()` heals."""

    def now(self) -> float:
        """The time on the clock of the history."""

    def history(self) -> list[Entry]:
        """What has happened so far, by time; empty unless submitted with a `sample`."""

    def activate(self) -> None:
        """Let the spouts emit. Raises LifecycleError, as all of these, where it is too late."""

    def deactivate(self) -> None:
        """Let the spouts rest: nothing is emitted, not even again; acks and failures go on."""

    def drain(self) -> None:
        """Let the spouts emit nothing fresh; what is open is finished."""

    def rebalance(
        self,
        workers: int | None = None,
        layout: Layout | None = None,
        wait_s: float | None = None,
        *,
        waits: bool = True,
    ) -> None:
        """Share the tasks out among so many workers, and return when they are there; at once,
        where it `waits` not.

        Spouts rest until nothing is pending, at most `wait_s` (default: the message timeout); what
        is pending then is emitted again. Raises LifecycleError before anything happens, when the
        state does not allow it or a task can neither stay nor move: see placement.py.
        """

    def kill(self, wait_s: float | None = None) -> KillReport:
        """Drain, at most `wait_s` (default: the message timeout), then stop. Says what was done."""

    def stop(self) -> None:
        """Close every task and end every worker. A second call does nothing.

        What close() and cleanup() raise is logged: all others are closed the same.
        """


class Cluster(Protocol):
    """Where topologies run."""

    def submit(
        self,
        graph: Graph,
        layout: Layout = Layout.PACK,
        *,
        active: bool = True,
        sample: int | None = None,
    ) -> Run:
        """Start a topology, active or not. Raises ClusterError when that cannot be done.

        `sample`: keep a history, and the edges of every so manieth tree; see history.py.
        """
