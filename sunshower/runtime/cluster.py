"""The port of a cluster, real or simulated: submit a topology, and control its run."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Protocol, TypeVar

from sunshower.arguments import SECONDS, SECONDS_FROM_0, Rule, Values, checked
from sunshower.errors import ClusterError
from sunshower.runtime.control.lifecycle import KillReport
from sunshower.runtime.control.plan_changes import AS_THEY_ARE
from sunshower.runtime.control.upgrades import OPEN_S
from sunshower.runtime.events.event_log import Entry
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.log_lines import LogLine
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Layout, Plan
from sunshower.runtime.savepoint import Savepoint
from sunshower.runtime.tuple_traces import Traces
from sunshower.topologies.graph import Graph

R = TypeVar("R")


class Run(Protocol):
    """A topology that was submitted."""

    @property
    def plan(self) -> Plan:
        """Which task runs on which worker."""

    def snapshot(self) -> Snapshot:
        """Return all counters (a fraction of a second old). Raises ClusterError."""

    def finished(self) -> bool:
        """Whether the spouts are exhausted and everything is processed.

        Raises TopologyFailed if the topology has failed, ClusterError if it is gone.
        """

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until finished, `timeout_s` at most. Returns and raises as `finished`."""

    def results(self, component: str) -> list[Any]:
        """Return `result()` of each task of a component."""

    def ask(self, name: str, value: Any, *, timeout_s: float = 10.0) -> list[Any]:
        """Send a request and return the rows of its answer, once its tree is complete; or, with
        the id of a spout and a DeadLetter of it, emit the letter's record again as a new message,
        and return ["acked"] or, if it has used up its attempts again, ["dead letter"].

        `value`: a record of the stream `name`, a dictionary of its fields, or the value of its only
        field. Raises RequestFailed, RequestRefused and RequestTimeout; UnknownComponent for another
        name; TopologyFailed and ClusterError if the topology does not run. Threads may call it.
        """

    def query(self, component: str, key: Any) -> Any:
        """Return the value of a key in the state of a running component, as its last batch has left
        it; None if there is none.

        A key of several fields is a tuple. Raises UnknownComponent for a component without a keyed
        state, and ClusterError while its task does not run.
        """

    def entries(self, component: str, limit: int = 20) -> list[tuple[Any, Any]]:
        """Return up to `limit` keys of a keyed state with their values. Raises as `query`."""

    def traces(self, root: str | None = None) -> Traces:
        """Return the recorded tuple trees of running workers, or the one with this root, the
        latest first; see tuple_traces.py.

        Which trees are recorded: `trace_share` in config.py. Raises ConfigError for a text that is
        no root, and ClusterError.
        """

    def log_lines(self, after: int = 0) -> list[LogLine]:
        """Return the last lines of the log, those with a `number` above `after`, in order.

        They are in the master's memory, up to 2,000; its next process begins a new log.
        """

    def kill_worker(self, worker: int) -> int:
        """Kill a worker's process with SIGKILL, as in a crash. Returns its process id."""

    def kill_master(self) -> int:
        """Kill the master's process likewise. Returns its process id."""

    def pause_worker(self, worker: int) -> None:
        """Stop a worker's process: it neither works nor answers until resumed."""

    def resume_worker(self, worker: int) -> None:
        """Let a paused process continue. Ignored if it was killed meanwhile."""

    def pause_master(self) -> None:
        """Stop the master's process. Requests to it wait."""

    def resume_master(self) -> None:
        """Let the master continue."""

    def nodes(self) -> dict[str, list[int]]:
        """Return machine → its workers."""

    def kill_node(self, node: str) -> list[int]:
        """Kill every process of this run on a machine with SIGKILL, also the master's.

        Returns the process ids. Raises ClusterError for a machine that cannot be reached.
        """

    def disturb(self, injected: InjectedFaults) -> None:
        """Replace the injected faults; `InjectedFaults()` injects none."""

    def now(self) -> float:
        """Return the time on the clock of the event log."""

    def history(self) -> list[Entry]:
        """Return the event log so far, by time; empty unless submitted with a `sample`."""

    def activate(self) -> None:
        """Let the spouts emit. Like all of these, raises LifecycleError when it is too late."""

    def deactivate(self) -> None:
        """Stop the spouts: nothing is emitted, nor replayed; acks and failures continue."""

    def drain(self) -> None:
        """Stop the spouts from emitting new records; finish what is pending."""

    def rebalance(
        self,
        workers: int | None = None,
        layout: Layout | None = None,
        wait_s: float | None = None,
        *,
        tasks: Mapping[str, int] = AS_THEY_ARE,
        waits: bool = True,
    ) -> None:
        """Distribute the tasks over `workers`, and return when this is done, or at once unless
        `waits`. `tasks`: new numbers of tasks, by component; of acker shards with ACKER (plan.py).

        Spouts stop until nothing is pending, at most `wait_s` (default: the message timeout); trees
        pending then are emitted again. Raises LifecycleError, before any change, if the state does
        not allow it, if a task can neither stay nor move (placement.py), or if a component cannot
        have so many tasks (plan_changes.py).
        """

    def upgrade(
        self,
        graph: Graph,
        wait_s: float | None = None,
        open_s: float = OPEN_S,
        *,
        dry_run: bool = False,
        waits: bool = True,
    ) -> list[str]:
        """Replace the code of the topology by that of `graph`, and return the changes: when the
        upgrade is done, or at once unless `waits`. `dry_run`: change nothing.

        Spouts stop as in a rebalance. Then all processes end, and those of the new code continue
        with positions and states. Raises LifecycleError, before any change, if the state of the
        topology does not allow it or a state does not fit (upgrades.py). Raises it also if a
        component has a state in memory, or if the new code does not open within `open_s`: then the
        old code continues. If the topology is drained or killed meanwhile, the error tells which
        code ran, if that is known.
        """

    def keep(self, wait_s: float | None = None) -> Savepoint:
        """Stop the spouts as in a rebalance, and return positions and states in memory.

        The topology is then paused, until `kill` or `go_on`, or for a minute. If it continues, the
        savepoint must not be used. Raises LifecycleError, and the topology continues, if the state
        of the topology does not allow it, if a task has a state without `snapshot` and `restore`,
        or if a value cannot be pickled for other code (OPERATING.md).
        Flink: stop with savepoint.
        """

    def go_on(self) -> bool:
        """Continue a topology after `keep`, whose savepoint must then not be used. Returns whether
        it continues; False: it is being killed, or was."""

    def kill(self, wait_s: float | None = None) -> KillReport:
        """Drain, at most `wait_s` (default: the message timeout), then stop. Returns a report.

        After `keep` it ends at once. If the topology has continued since, it raises LifecycleError
        and ends nothing: do not use the savepoint. The next `kill` is as without `keep`.
        """

    def stop(self) -> None:
        """Close every task and end every worker. A second call does nothing.

        Errors of close() and cleanup() are logged; all other tasks are still closed.
        """


_WAIT = SECONDS_FROM_0.or_else("none", None).or_else("inf", inf)
_TIMEOUT = Values(float, "a number of seconds").or_else("none", None).or_else("inf", inf)
_ARGUMENTS: Mapping[str, Mapping[str, Rule]] = {
    **{name: {} for name in ("results", "ask", "query", "entries", "traces", "log_lines")},
    **{name: {} for name in ("kill_worker", "pause_worker", "resume_worker", "kill_node")},
    **{name: {"wait_s": _WAIT} for name in ("rebalance", "keep", "kill")},
    "wait": {"timeout_s": _TIMEOUT},
    "upgrade": {"wait_s": _WAIT, "open_s": SECONDS},
}


def with_checks(kind: type[R]) -> type[R]:
    """Let the methods of an implementation of Run check their arguments. Raises ClusterError."""
    for name, rules in _ARGUMENTS.items():
        check = checked(ClusterError, f"run.{name}", **rules)
        setattr(kind, name, check(getattr(kind, name)))
    return kind


class Cluster(Protocol):
    """Runs topologies."""

    name: str  # the kind, which the results of an experiment state: sim or ray

    def submit(
        self,
        graph: Graph,
        layout: Layout = Layout.PACK,
        *,
        active: bool = True,
        sample: int | None = None,
        resume: Savepoint | None = None,
    ) -> Run:
        """Start a topology, active or not. Raises ClusterError if that fails.

        `resume`: continue from a savepoint; LifecycleError if the graph does not fit. `sample`:
        keep an event log, with the edges of every n-th tree; see event_log.py.
        """
