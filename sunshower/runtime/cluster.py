"""The port of a cluster, real or simulated: submit a topology, and control its run.

Adapters derive from `Run`. Its abstract methods are the port: how to call the master and the
workers, how time passes, and what is done to processes. The other methods are the part that Ray
and the simulator share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Protocol, TypeVar

from sunshower.arguments import COUNT, SECONDS, SECONDS_FROM_0, Rule, Values, checked
from sunshower.errors import ClusterError, LifecycleError, TopologyFailed
from sunshower.runtime import queries
from sunshower.runtime.control import events
from sunshower.runtime.control.lifecycle import KillReport, State
from sunshower.runtime.control.plan_changes import AS_THEY_ARE, OPEN_S, with_given
from sunshower.runtime.control.savepoint import Savepoint
from sunshower.runtime.events.event_log import Entry
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.log_lines import LogLine
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.events.trace_recorder import Traces, WorkerTraces, assemble, root_number
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.runtime.queries import Query
from sunshower.topologies.describe import CodePart
from sunshower.topologies.graph import Graph

T = TypeVar("T")
MASTER = -1  # its address; a worker's address is its id
Look = Callable[[Snapshot], None]  # is called with snapshots while a command waits
_WAIT = SECONDS_FROM_0.or_else("none", None).or_else("inf", inf)
_TIMEOUT = Values(float, "a number of seconds").or_else("none", None).or_else("inf", inf)
_CHECKED: Mapping[str, Mapping[str, Rule]] = {
    **{name: {} for name in ("results", "ask", "query", "traces", "log_lines", "code_parts")},
    **{name: {} for name in ("kill_worker", "pause_worker", "resume_worker", "kill_node")},
    **{name: {"wait_s": _WAIT} for name in ("rebalance", "keep", "kill")},
    "entries": {"limit": COUNT},
    "wait": {"timeout_s": _TIMEOUT},
    "upgrade": {"wait_s": _WAIT, "open_s": SECONDS},
}


class Run(ABC):
    """A topology that was submitted."""

    def __init__(self, topology: str) -> None:
        self.topology = topology
        self.stopped = False  # then its name is free
        self._kept: int | None = None  # the number of its savepoint

    def __init_subclass__(cls) -> None:
        """The methods of implementations check their arguments. They raise ClusterError."""
        for name, rules in _CHECKED.items():
            check = checked(ClusterError, f"run.{name}", **rules)
            setattr(cls, name, check(getattr(cls, name)))

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """Which task runs on which worker."""

    def snapshot(self) -> Snapshot:
        """Return all counters (a fraction of a second old). Raises ClusterError, and TopologyFailed
        if the topology has failed."""
        snapshot: Snapshot
        snapshot, error = self._call_master("status")
        if error is not None:
            raise TopologyFailed(error)
        return snapshot

    def _repr_html_(self) -> str:
        """The counters, in a notebook."""
        return self.snapshot()._repr_html_()

    def finished(self) -> bool:
        """Whether the spouts are exhausted and everything is processed.

        Raises TopologyFailed if the topology has failed, ClusterError if it is gone.
        """
        return self.snapshot().state == State.FINISHED

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until finished, `timeout_s` at most. Returns and raises as `finished`."""
        try:
            return self._until(lambda: self._state() == State.FINISHED, within_s=timeout_s)
        except TimeoutError:
            return False

    def results(self, component: str) -> list[Any]:
        """Return `result()` of each task of a component, in the order of their ids."""
        tasks = self.plan.tasks_of(component)
        workers = dict.fromkeys(task.worker for task in tasks)
        answers = {worker: self._call_worker(worker, "results", component) for worker in workers}
        return [answers[task.worker].pop(0) for task in tasks]

    @abstractmethod
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
        return queries.value(self.plan, component, key, self._query)

    def entries(self, component: str, limit: int = 20) -> list[tuple[Any, Any]]:
        """Return up to `limit` keys of a keyed state with their values. Raises as `query`."""
        return queries.entries(self.plan, component, limit, self._query)

    def traces(self, root: str | None = None) -> Traces:
        """Return the recorded tuple trees of running workers, or the one with this root, the
        latest first; see trace_recorder.py.

        Which trees are recorded: `trace_share` in config.py. Raises ConfigError for a text that is
        no root, and ClusterError.
        """
        number = None if root is None else root_number(root)
        return assemble(self.plan, self._recorded(number))

    def log_lines(self, after: int = 0) -> list[LogLine]:
        """Return the last lines of the log, those with a `number` above `after`, in order.

        They are in the master's memory, up to 2,000; its next process begins a new log. In the
        simulator they have no records of `logging`, which all simulated processes share.
        """
        return list(self._call_master("read_log", after))

    def code_parts(self, component: str) -> list[CodePart]:
        """Return the functions and classes of the program that a component runs, with their
        source, as far as its worker can read it (the master has no code). An empty list for a name
        that no component has."""
        tasks = self.plan.tasks_of(component)
        return list(self._call_worker(tasks[0].worker, "code_parts", component)) if tasks else []

    def kill_worker(self, worker: int) -> int:
        """Kill a worker's process with SIGKILL, as in a crash. Returns its process id."""
        return self._kill(worker)

    def kill_master(self) -> int:
        """Kill the master's process likewise. Returns its process id."""
        return self._kill(MASTER)

    def pause_worker(self, worker: int) -> None:
        """Stop a worker's process: it neither works nor answers until resumed."""
        self._pause(worker)

    def resume_worker(self, worker: int) -> None:
        """Let a paused process continue. Ignored if it was killed meanwhile."""
        self._resume(worker)

    def pause_master(self) -> None:
        """Stop the master's process. Requests to it wait."""
        self._pause(MASTER)

    def resume_master(self) -> None:
        """Let the master continue."""
        self._resume(MASTER)

    @abstractmethod
    def nodes(self) -> dict[str, list[int]]:
        """Return machine → its workers."""

    @abstractmethod
    def kill_node(self, node: str) -> list[int]:
        """Kill every process of this run on a machine with SIGKILL, also the master's.

        Returns the process ids. Raises ClusterError for a machine that cannot be reached.
        """

    @abstractmethod
    def disturb(self, injected: InjectedFaults) -> None:
        """Replace the injected faults; `InjectedFaults()` injects none."""

    @abstractmethod
    def now(self) -> float:
        """Return the time on the clock of the event log."""

    @abstractmethod
    def history(self) -> list[Entry]:
        """Return the event log so far, by time; empty unless submitted with a `sample`."""

    def activate(self) -> None:
        """Let the spouts emit. Like all of these, raises LifecycleError when it is too late."""
        self._apply(events.Activate())

    def deactivate(self) -> None:
        """Stop the spouts: nothing is emitted, nor replayed; acks and failures continue, and
        batches that have begun are committed."""
        self._apply(events.Deactivate())

    def drain(self) -> None:
        """Stop the spouts from emitting new records; finish what is pending."""
        self._apply(events.DrainSpouts())

    def rebalance(
        self,
        workers: int | None = None,
        layout: Layout | None = None,
        wait_s: float | None = None,
        *,
        tasks: Mapping[str, int] = AS_THEY_ARE,
        auto: bool = False,
        waits: bool = True,
        look: Look | None = None,
    ) -> None:
        """Distribute the tasks over `workers`, and return when this is done, or at once unless
        `waits`. `tasks`: new numbers of tasks, by component; of acker shards with ACKER (plan.py).

        Spouts stop until nothing is pending, at most `wait_s` (default: the message timeout); trees
        pending then are emitted again. Raises LifecycleError, before any change, if the state does
        not allow it, if a task can neither stay nor move, or if a component cannot have so many
        tasks (placement.py).

        A number with `between` must lie within its bounds, and no longer follows the load then,
        until a rebalance with `auto`, after which all numbers that are not given do so.
        """
        number = self._apply_once(events.RebalanceTasks(workers, layout, wait_s, dict(tasks), auto))
        if waits:
            self._wait_for_change(number, wait_s, look)

    def upgrade(
        self,
        graph: Graph,
        wait_s: float | None = None,
        open_s: float = OPEN_S,
        *,
        dry_run: bool = False,
        waits: bool = True,
        look: Look | None = None,
    ) -> list[str]:
        """Replace the code of the topology by that of `graph`, and return the changes: when the
        upgrade is done, or at once unless `waits`. `dry_run`: change nothing.

        Spouts stop as in a rebalance. Then all processes end, and those of the new code continue
        with positions and states. Numbers of tasks and workers that a rebalance has changed are
        kept, unless `graph` declares others than the graph before it. Raises LifecycleError, before
        any change, if the state of the topology does not allow it or a state does not fit
        (plan_changes.py). Raises it also if a component has a state in memory, or if the new code
        does not open within `open_s`: then the old code continues. If the topology is drained or
        killed meanwhile, the error tells which code ran, if that is known.
        """
        graph, kept_lines = with_given(self.plan, graph)
        plan = self._shipped(make_plan(graph))
        lines: list[str]
        number, lines = self._apply_once(events.Upgrade(plan, wait_s, open_s, dry_run))
        if waits:
            self._wait_for_change(number, wait_s, look)
        return [*lines, *kept_lines]

    def keep(self, wait_s: float | None = None, *, look: Look | None = None) -> Savepoint:
        """Stop the spouts as in a rebalance, and return positions and states in memory.

        The topology is then paused, until `kill` or `go_on`, or for a minute. If it continues, the
        savepoint must not be used. Raises LifecycleError, and the topology continues, if the state
        of the topology does not allow it, if a task has a state without `snapshot` and `restore`,
        or if a value cannot be pickled for other code (OPERATING.md).
        Flink: stop with savepoint.
        """
        self._kept = number = self._apply_once(events.Keep(wait_s))
        try:
            packed = self._until(lambda: self._packed(number, look))
            savepoint: Savepoint = packed.with_transfers(self._transfers_of(packed.move))
        except BaseException:  # also Ctrl-C
            with suppress(Exception):
                self.go_on()
            raise
        return savepoint

    def go_on(self) -> bool:
        """Continue a topology after `keep`, whose savepoint must then not be used. Returns whether
        it continues; False: it is being killed, or was."""
        savepoint, self._kept = self._kept, None
        return not self.stopped and (savepoint is None or bool(self._apply(events.GoOn(savepoint))))

    def kill(self, wait_s: float | None = None, *, look: Look | None = None) -> KillReport:
        """Drain, at most `wait_s` (default: the message timeout), then stop. Returns a report.

        After `keep` it ends at once. If the topology has continued since, it raises LifecycleError
        and ends nothing: do not use the savepoint. The next `kill` is as without `keep`.
        """
        try:
            self._apply(events.Kill(wait_s, self._kept))
        except LifecycleError:
            self._kept = None
            raise
        self._until(lambda: self._state(look, fails=False) == State.KILLED)
        report: KillReport = self._call_master("kill_report")
        self.stop()
        return report

    @abstractmethod
    def stop(self) -> None:
        """Close every task and end every worker. A second call does nothing.

        Errors of close() and cleanup() are logged; all other tasks are still closed.
        """

    # ---- the port: implemented by the adapter ------------------------------------------------

    @abstractmethod
    def _call_master(self, what: str, *arguments: Any) -> Any:
        """Call a method of the master, and return its result. Raises the SunshowerErrors that the
        method raises, and ClusterError if the master does not answer, or the topology was stopped.
        """

    def _apply(self, event: events.Event) -> Any:
        """Send the master an event, and return the answer. Raises as `_call_master`."""
        return self._call_master("apply", event)

    def _apply_once(self, event: events.Event) -> Any:
        """The same, not repeated if the master dies meanwhile."""
        return self._apply(event)

    @abstractmethod
    def _call_worker(self, worker: int, what: str, *arguments: Any) -> Any:
        """Call a method of a worker likewise; TopologyFailed for an error of user code."""

    @abstractmethod
    def _kill(self, address: int) -> int:
        """SIGKILL the process of a worker, or that of the MASTER."""

    @abstractmethod
    def _pause(self, address: int) -> None:
        """SIGSTOP likewise."""

    @abstractmethod
    def _resume(self, address: int) -> None:
        """SIGCONT likewise."""

    @abstractmethod
    def _until(self, ready: Callable[[], T], within_s: float | None = None) -> T:
        """Let time pass until `ready` returns something, and return that. `ready` is not called
        while the master is paused. Raises TimeoutError."""

    @abstractmethod
    def _recorded(self, root: int | None) -> Iterable[WorkerTraces]:
        """The recorded trees of the workers that answer, or the one with this root."""

    @abstractmethod
    def _transfers_of(self, move: int) -> Callable[[int], bytes | None]:
        """Returns the pickled TaskTransfer that a task has stored in rebalance number `move`."""

    def _shipped(self, plan: Plan) -> Any:
        """A plan as the master gets it."""
        return plan

    # ---- helpers -----------------------------------------------------------------------------

    def _state(self, look: Look | None = None, *, fails: bool = True) -> State:
        """The state of the topology, after calling `look` with the snapshot that has it. Raises
        TopologyFailed if it has failed and `fails` is true."""
        snapshot, error = self._call_master("status")
        if look is not None:
            look(snapshot)
        if fails and error is not None:
            raise TopologyFailed(error)
        return State(snapshot.state)

    def _packed(self, number: int, look: Look | None) -> Any:
        """The tasks of savepoint `number`; None while they are still being packed."""
        self._state(look)
        return self._call_master("savepoint", number)

    def _wait_for_change(self, number: int, wait_s: float | None, look: Look | None = None) -> None:
        """Raises LifecycleError if that rebalance or upgrade did not happen. `wait_s`: how long it
        waits for pending trees."""
        if number:  # else nothing changes
            self._until(lambda: self._state(look) != State.REBALANCING)
            self._call_master("check_change", number)

    def _query(self, worker: int, query: Query) -> Any:
        return self._call_worker(worker, "query", query)


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
