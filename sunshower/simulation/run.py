"""One topology in a simulated cluster: an implementation of the `Run` port."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from math import inf
from typing import Any, TypeVar

from sunshower.errors import ClusterError, TopologyFailed
from sunshower.runtime.cluster import Look, Run
from sunshower.runtime.control.lifecycle import NOT_STARTED, State
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.event_log import Entry
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.latencies import LatencyKind
from sunshower.runtime.events.metrics import TaskStats
from sunshower.runtime.events.trace_recorder import WorkerTraces
from sunshower.runtime.plan import Plan
from sunshower.runtime.request_calls import worker_of_requests
from sunshower.simulation.callers import SimCaller, user_code_of
from sunshower.simulation.environment import SimEnvironment
from sunshower.simulation.machines import Machines
from sunshower.simulation.master import SimMaster
from sunshower.simulation.network import MASTER, SimProcess
from sunshower.simulation.worker import SimWorker

T = TypeVar("T")
_log = logging.getLogger(__name__)
_POLL_S = 0.1  # how often to check the master's state, while it receives something
_SETTLE_S = 1.1  # on its clock; after that it is certain that nothing is in flight
_START_S = 60.0  # for all workers to say hello
_CALL_S = 30.0
_MOVE_S = 300.0  # for a rebalance, once the spouts are quiet


class SimRun(Run):
    """A run whose time passes only while the caller waits or calls the master."""

    def __init__(self, env: SimEnvironment, *, active: bool) -> None:
        super().__init__(env.plan.graph.id)
        self._env = env
        self._world = env.world
        self._machines = Machines(env, active=active)
        self._plan = env.plan  # in force, as last read from the master
        self._settle_s = _SETTLE_S / (1 - env.conditions.drift)

    def start(self) -> None:
        """Return once every worker has said hello."""
        try:
            self._until(lambda: self._state() not in NOT_STARTED, within_s=_START_S)
        except TimeoutError:
            raise ClusterError(
                f"not all {len(self.plan.workers)} workers of {self.topology!r} started in "
                f"{_START_S:g} s of simulated time\n{self._describe()}"
            ) from None

    @property
    def plan(self) -> Plan:
        """Does not call a paused master."""
        if not self.stopped and not self._is_paused:
            self._plan = self._ask(lambda master: master.core.plan)
        return self._plan

    def overview(self) -> Overview:
        """As of a run on Ray: with the windows of time, also if the topology has failed."""
        found = self._ask(lambda master: master.core.snapshot(master.now(), windows=True))
        return Overview(self.plan, found, self._master.core.error, 0.0, {})

    def ask(self, name: str, value: Any, *, timeout_s: float = 10.0) -> list[Any]:
        caller = self.send(name, value, timeout_s=timeout_s)
        while not caller.has_ended:
            self._check_there()
            if self._answers:
                self._state()
            self._world.step()
        return caller.result

    def send(self, name: str, value: Any, *, timeout_s: float = 10.0) -> SimCaller:
        """Send a request without waiting for its answer; it continues while time passes."""
        worker_of_requests(self.plan, name)

        def worker() -> int:
            plan = self._master.core.plan if self._answers else self._plan
            return worker_of_requests(plan, name)

        return SimCaller(self._env, worker, name, value, timeout_s)

    def _recorded(self, root: int | None) -> Iterable[WorkerTraces]:
        """Times are those of the world. A worker that is paused does not answer."""
        there = self._env.network.there.values()
        found = [one for one in there if isinstance(one, SimWorker) and not one.paused]
        return [one.traces(root, lambda: self._world.now_s) for one in found]

    def kill_worker(self, worker: int) -> int:
        return self._kill(worker)

    def kill_master(self) -> int:
        return self._kill(MASTER)

    def pause_worker(self, worker: int) -> None:
        self._process(worker).pause()
        self._machines.watch()

    def resume_worker(self, worker: int) -> None:
        self._resume(worker)

    def pause_master(self) -> None:
        self._process(MASTER).pause()
        self._machines.watch()
        self._plan = self._master.core.plan

    def resume_master(self) -> None:
        self._resume(MASTER)

    def nodes(self) -> dict[str, list[int]]:
        self._check_there()
        return self._machines.nodes()

    def kill_node(self, node: str) -> list[int]:
        self._check_there()
        return self._machines.kill_node(node)

    def drain_node(self, node: str) -> None:
        """Begin to drain a machine, as `ray drain-node` does: the master moves its workers away."""
        self._check_there()
        self._machines.drain_node(node)

    def disturb(self, injected: InjectedFaults) -> None:
        """A paused master receives it when resumed; if it dies, the next master does."""
        self._check_there()
        if injected.isolated:
            self._machines.watch()
        if not self._is_paused:
            self._ask(lambda master: master.disturb(injected))
            return

        def hear() -> None:
            self._master.disturb(injected)

        self._master.do(hear, failed=lambda: self._env.network.when_there(MASTER, hear))

    def now(self) -> float:
        """The virtual seconds since the simulation began."""
        return self._world.now_s

    def history(self) -> list[Entry]:
        """Raises ClusterError after the topology was stopped."""
        self._check_there()
        return sorted(chain.from_iterable(self._env.entries), key=lambda entry: entry.at_s)

    def _wait_for_change(self, number: int, wait_s: float | None, look: Look | None = None) -> None:
        """Raises ClusterError, too, if it takes too long: virtual time would pass without end."""
        if not number:
            return
        config = self._env.plan.graph.config
        longest_s = (config.message_timeout_s if wait_s is None else wait_s) + _MOVE_S
        try:
            self._until(lambda: self._state(look) != State.REBALANCING, longest_s)
        except TimeoutError:
            raise ClusterError(
                f"the tasks of {self.topology!r} have not changed places within {longest_s:g} s of "
                f"simulated time: somebody does not answer\n{self._describe()}"
            ) from None
        self._call_master("check_change", number)

    def stop(self) -> None:
        if self.stopped:
            return
        self.stopped = True
        for _, process in sorted(self._machines.processes.items()):
            if isinstance(process, SimWorker):
                for error in process.close():
                    _log.warning("%s", error.story)
        self._machines.stop()

    # ---- helpers ---------------------------------------------------------------------------

    @property
    def _master(self) -> SimMaster:
        master = self._env.network.there[MASTER]
        assert isinstance(master, SimMaster)
        return master

    @property
    def _answers(self) -> bool:
        """Whether the master is alive and not paused."""
        process = self._env.network.there.get(MASTER)
        return process is not None and not process.paused

    @property
    def _is_paused(self) -> bool:
        process = self._env.network.there.get(MASTER)
        return process is not None and process.paused

    def _check_there(self) -> None:
        if self.stopped:
            raise ClusterError(f"topology {self.topology!r} was stopped; submit it again")

    def _ask(self, what: Callable[[SimMaster], T]) -> T:
        """Call the master after a network latency; waits for a new master if it has died."""
        self._check_there()
        self._world.run_until(self._world.now_s + self._env.network.latency_s())
        if not self._comes_true(lambda: self._answers):
            raise ClusterError(
                f"topology {self.topology!r} does not answer: its master is paused, and did not "
                f"go on within {_CALL_S:g} s of simulated time. Resume it"
            )
        return what(self._master)

    def _call_master(self, what: str, *given: Any) -> Any:
        return self._ask(lambda master: getattr(master, what)(*given))

    def _state(self, look: Look | None = None, *, fails: bool = True) -> State:
        """Without a call, so no time passes."""
        state = self._master.state()
        if look is not None:
            look(self._master.status()[0])
        if fails and state == State.FAILED:
            raise TopologyFailed(self._master.core.error)
        return state

    def _until(self, ready: Callable[[], T], within_s: float | None = None) -> T:
        """Raises ClusterError, too, if no event is left and there is no limit."""
        self._check_there()
        world = self._world
        end_s = inf if within_s is None else world.now_s + within_s
        look_s = world.now_s  # again, once the master is certain that nothing is in flight
        while True:
            over = world.now_s >= end_s
            if self._answers and (self._master.heard or over or world.now_s >= look_s):
                look_s = world.now_s + self._settle_s if self._master.heard else inf
                self._master.heard = False
                if found := ready():
                    return found
            if over:
                raise TimeoutError
            next_s = max(world.next_s, world.now_s + _POLL_S)
            if look_s > world.now_s:  # else the master does not answer
                next_s = min(next_s, look_s)
            if min(next_s, end_s) == inf:
                raise ClusterError(
                    f"topology {self.topology!r} is stuck: nothing will ever happen any more\n"
                    + self._describe()
                )
            world.run_until(min(next_s, end_s))

    def _transfers_of(self, move: int) -> Callable[[int], bytes | None]:
        return partial(self._env.packed, move)

    def _process(self, address: int) -> SimProcess:
        self._check_there()
        process = self._env.network.there.get(address)
        if process is None:
            who = "the master" if address == MASTER else f"worker {address}"
            raise ClusterError(f"{who} is not there: it has just died")
        return process

    def _kill(self, address: int) -> int:
        pid = self._process(address).pid
        self._machines.kill(address)
        return pid

    def _resume(self, address: int) -> None:
        self._check_there()
        self._machines.resume(address)

    def _call_worker(self, worker: int, what: str, *given: Any) -> Any:
        there = self._env.network.there
        if not self._comes_true(lambda: worker in there and there[worker].ready):
            raise ClusterError(
                f"worker {worker} of {self.topology!r} does not answer\n{self._describe()}"
            )
        process = there[worker]
        assert isinstance(process, SimWorker)
        with user_code_of(self.topology):
            return getattr(process, what)(*given)

    def _comes_true(self, what: Callable[[], bool]) -> bool:
        """Let time pass until `what()`, for 30 s at most. Returns whether it came true."""
        end_s = self._world.now_s + _CALL_S
        while not what():
            if self._world.next_s > end_s:
                self._world.run_until(end_s)
                return False
            self._world.step()
        return True

    def _describe(self) -> str:
        """What each process of a run that cannot continue waits for: one line for the master and
        one for each worker."""
        world, there = self._world, self._env.network.there
        master = there.get(MASTER)
        standing = "is down" if master is None else "is paused" if master.paused else "waits"
        lines = [f"seed {world.seed}, at {world.now_s:.6f} s: the master {standing}"]
        workers = {task.worker for task in self._env.plan.tasks} | {w for w in there if w >= 0}
        for worker in sorted(workers):
            process = there.get(worker)
            doing = _describe_worker(process) if isinstance(process, SimWorker) else "is not there"
            lines.append(f"worker {worker} {doing}")
        return "\n".join(lines)


def _describe_worker(process: SimWorker) -> str:
    if process.core is None:
        return "waits for the master's welcome"
    stats = process.core.stats()
    standing = "has given up" if process.broken else "is paused" if process.paused else "waits"
    doing = "nothing to do" if stats.idle else "records in its inboxes, or packets on their way"
    tasks = ", ".join(map(_describe_task, stats.tasks)) or "only ackers"
    return f"(life {stats.incarnation}) {standing}, with {doing}: {tasks}"


def _describe_task(task: TaskStats) -> str:
    if LatencyKind.COMPLETE not in task.latencies:
        return f"{task.component} has executed {task.counts.executed}"
    done = "is done" if task.done else "is not done"
    return f"{task.component} {done}, with {task.counts.pending} pending of {task.unsettled} open"
