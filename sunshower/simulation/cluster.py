"""The simulated cluster: the implementation of the `Cluster` port for experiments and tests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from itertools import chain, count
from math import inf
from typing import Any, Self, TypeVar

from sunshower.clock import VIRTUAL_DATE
from sunshower.errors import (
    ClusterError,
    RequestError,
    SunshowerError,
    TopologyFailed,
    interruptible,
    user_errors,
)
from sunshower.runtime.cluster import MASTER, Look, Run
from sunshower.runtime.control import events
from sunshower.runtime.control.lifecycle import NOT_STARTED, State
from sunshower.runtime.control.nodes import NodeState, NodeView
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.control.savepoint import Savepoint
from sunshower.runtime.events.event_log import Entry
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.metrics import LatencyKind, TaskStats
from sunshower.runtime.events.trace_recorder import WorkerTraces
from sunshower.runtime.master_process import MasterProcessBase
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.runtime.queries import Caller, worker_of_requests
from sunshower.runtime.tracking.ids import seeded
from sunshower.simulation.network import STATE, Network, SimEnvironment, SimProcess, World, drawn
from sunshower.simulation.worker import SimWorker
from sunshower.topologies.graph import Graph
from sunshower.topologies.requests import Reply, RequestProgress

# ---- master --------------------------------------------------------------------------------------

T = TypeVar("T")


class SimMaster(SimProcess, MasterProcessBase):
    """One life of the master. Its MasterState is in the store, as bytes."""

    def __init__(self, env: SimEnvironment, node: str, machines: Machines, *, active: bool) -> None:
        SimProcess.__init__(self, env.world, env.conditions, MASTER, node)
        self.heard = True  # whether anything arrived since the run last checked
        self._env = env
        self._machines = machines
        MasterProcessBase.__init__(self, active=active)

    def apply(self, event: events.Event) -> Any:
        self.heard = self.heard or not isinstance(event, events.Beat | events.Stuck)
        return super().apply(event)

    def ask(self, event: events.Event, caller: SimProcess, hear: Callable[[Any], None]) -> None:
        """Apply an event, and send the answer to the worker that waits for it."""
        if (answer := self.apply(event)) is not None:
            self._env.network.answer(self, caller, hear, answer)

    # ---- the port of MasterProcessBase -----------------------------------------------------------

    def now(self) -> float:
        return self.clock.now()

    def wall(self) -> float:
        return self.clock.wall()

    def load_state(self) -> bytes | None:
        return self._env.store.get(STATE)

    def save_state(self, state: bytes) -> None:
        self._env.store[STATE] = state

    def load_plan(self, number: int) -> Plan:
        return self._env.plan_of(number)

    def save_plan(self, number: int, plan: Plan) -> None:
        self._env.plans[number] = plan

    def keep_plans(self, numbers: Collection[int]) -> None:
        for number in self._env.plans.keys() - numbers:
            del self._env.plans[number]

    def remove_transfers(self) -> None:
        self._env.transfer.clear()

    def call_worker(self, worker: int, what: str, *arguments: Any) -> None:
        self._env.network.call(self, worker, what, *arguments)

    def create_worker(self, worker: int) -> None:
        self._machines.create(worker)

    def replace_worker(self, worker: int) -> None:
        fenced = self.core.stored.fenced.get(worker, 0)
        self._machines.replace(worker, reachable=not self.core.is_isolated(worker, fenced))

    def end_worker(self, worker: int) -> None:
        self._machines.end(worker)

    def node_view(self) -> NodeView:
        return self._machines.view()

    def look_after(self, seconds: float) -> None:
        self._world.after(self.clock.in_world_s(seconds), self.do, self.apply, events.Tick())


# ---- machines ------------------------------------------------------------------------------------

_FIRST_START_S = (0.0, 0.05)
_FIRST_PID = 1_000
_BEAT_S = 1.0  # between two heartbeats
_FRESH_S = 3.0  # the age of the last answered one, from which on nothing is wrong
_WATCH_MAX_S = 3_600.0  # of a pause without end


class Machines:
    """Keeps processes alive on any machine, as Ray does for actors."""

    def __init__(self, env: SimEnvironment, *, active: bool) -> None:
        self._env = env
        self._world = env.world
        self._active = active
        self._pids = count(_FIRST_PID)
        self._wanted = {MASTER}  # the processes to restart when they die
        self._names = [f"node-{number}" for number in range(env.conditions.nodes)]
        self._begun: set[int] = set()  # the processes started before
        self._zombies: list[SimWorker] = []  # replaced workers that could not be ended
        self._draining: set[str] = set()  # machines on which nothing starts
        self._watch_until_s = 0.0  # 0.0: there are no heartbeats
        self._start(MASTER)
        for worker in env.plan.workers:
            self.create(worker)

    @property
    def processes(self) -> dict[int, SimProcess]:
        """The living processes, by address."""
        return self._env.network.there

    def create(self, worker: int) -> None:
        """Create a worker's process, unless it exists or is starting already."""
        if worker not in self._wanted:
            self._wanted.add(worker)
            self._world.after(self._world.between(*_FIRST_START_S), self._start, worker)

    def watch(self) -> None:
        """Simulate heartbeats, because a process is paused or cut off, until none is any more.

        Otherwise heartbeats change nothing, so there are none."""
        begins = self._watch_until_s == 0.0
        self._watch_until_s = self._world.now_s + _WATCH_MAX_S
        if begins:
            for worker in self._workers():
                worker.lease.ticked_s = worker.lease.renewed_s = worker.clock.now()
            self._world.after(_BEAT_S * self._world.draw(), self._beat)

    def replace(self, worker: int, *, reachable: bool) -> None:
        """Start another process for a silent worker. The former one is killed, or cannot be
        reached: then it is a zombie, which does not know that it was replaced."""
        former = self.processes.pop(worker, None)
        if isinstance(former, SimWorker):
            former.note_stop()
            if reachable and self._world.draw() < 0.5:
                former.die()
            else:
                self._zombies.append(former)
            self._world.after(
                self._world.between(*self._env.conditions.down_s), self._start, worker
            )

    def resume(self, address: int) -> None:
        """SIGCONT to the process at an address, and to those that it has replaced."""
        running = self.processes.get(address)
        former = [zombie for zombie in self._zombies if zombie.address == address]
        for process in [*former, *([running] if running is not None else [])]:
            if process.paused:
                process.resume()

    def end(self, worker: int) -> None:
        """End a worker that is no longer needed."""
        self._wanted.discard(worker)
        self._env.recorders.pop(worker, None)
        self._remove(worker)

    def kill(self, address: int) -> int | None:
        """SIGKILL a process, which is restarted later. Returns its process id; None: no process."""
        if address not in self.processes:
            return None
        process = self.processes[address]
        self._remove(address)
        self._world.after(self._world.between(*self._env.conditions.down_s), self._start, address)
        return process.pid

    def nodes(self) -> dict[str, list[int]]:
        by_node: dict[str, list[int]] = {name: [] for name in self._names}
        for address, process in sorted(self.processes.items()):
            if address != MASTER:
                by_node[process.node].append(address)
        return by_node

    def kill_node(self, node: str) -> list[int]:
        """End a machine: SIGKILL all its processes and drop their flight recorders.

        An empty machine of the same name replaces it at once. Returns the killed process ids."""
        if node not in self._names:
            raise ClusterError(
                f"there is no machine {node!r} in this cluster; there are: {', '.join(self._names)}"
            )
        dead = [address for address, p in sorted(self.processes.items()) if p.node == node]
        pids = [pid for address in dead if (pid := self.kill(address)) is not None]
        for worker in [w for w, (where, _) in self._env.recorders.items() if where == node]:
            del self._env.recorders[worker]  # the machine cannot return them any more
        return pids

    def drain_node(self, node: str) -> None:
        """Start nothing more on a machine, and tell the master, which moves its workers away."""
        self._draining.add(node)
        self.watch()

    def view(self) -> NodeView:
        """What a master knows about the machines: nothing, unless one is being drained."""
        if not self._draining:
            return NodeView()
        nodes = (NodeState(n, leaves_s=inf if n in self._draining else None) for n in self._names)
        processes = self.processes.items()
        places = {address: p.node for address, p in processes if address != MASTER}
        return NodeView(tuple(nodes), places)

    def stop(self) -> None:
        """End all processes, without a restart."""
        self._wanted.clear()
        for address in list(self.processes):
            self._remove(address)

    def _start(self, address: int) -> None:
        if address not in self._wanted or address in self.processes:
            return
        node = self._node_for(address)
        process: SimProcess
        if address == MASTER:
            process = SimMaster(self._env, node, self, active=self._active)
        else:
            process = SimWorker(self._env, address, node, self._ended)
        process.pid = next(self._pids)
        self._env.network.enter(process)
        if isinstance(process, SimWorker):
            process.say_hello()

    def _node_for(self, address: int) -> str:
        """The machine to start on: first starts are spread, restarts are random."""
        names = [name for name in self._names if name not in self._draining] or self._names
        if address not in self._begun:
            self._begun.add(address)
            return names[(address + 1) % len(names)]
        return names[int(self._world.draw() * len(names))]

    def _ended(self, process: SimProcess) -> None:
        """User code or the watchdog has ended a process, unless it was killed before."""
        if self.processes.get(process.address) is process:
            self.kill(process.address)
        elif process in self._zombies:
            self._zombies.remove(process)
            process.die()

    def _workers(self) -> list[SimWorker]:
        living = [process for _, process in sorted(self.processes.items())]
        return [process for process in [*living, *self._zombies] if isinstance(process, SimWorker)]

    def _beat(self) -> None:
        """Each worker sends a heartbeat, and the master looks for silent ones."""
        master, workers = self.processes.get(MASTER), self._workers()
        for worker in workers:
            if not worker.paused:
                worker.send_beat()
        if isinstance(master, SimMaster) and not master.paused:
            master.apply(events.Watch())
        now_s = self._world.now_s
        if now_s < self._watch_until_s and (master is None or self._is_wrong(master, workers)):
            self._world.after(_BEAT_S, self._beat)
            return
        self._watch_until_s = 0.0
        for worker in workers:
            worker.lease.ticked_s = worker.lease.renewed_s = inf

    def _is_wrong(self, master: SimProcess, workers: list[SimWorker]) -> bool:
        stored = master.core.stored if isinstance(master, SimMaster) else None
        return (
            any(worker.node in self._draining for worker in workers)
            or bool(self._zombies or (stored and (stored.isolated or stored.fenced)))
            or any(process.paused for process in (master, *workers))
            or any(worker.clock.now() - worker.lease.renewed_s > _FRESH_S for worker in workers)
        )

    def _remove(self, address: int) -> None:
        process = self.processes.pop(address, None)
        if process is not None:
            process.die()


# ---- callers -------------------------------------------------------------------------------------

_ADDRESS = -2  # nobody calls it


class SimCaller(SimProcess):
    """Sends one request until it is answered; `has_ended` then, or when it has failed."""

    def __init__(
        self,
        env: SimEnvironment,
        worker: Callable[[], int],
        name: str,
        value: Any,
        timeout_s: float,
    ) -> None:
        """`worker`: says which worker has the requests now. As on Ray, the caller stays with that
        until it has not the request, or does not answer."""
        super().__init__(env.world, env.conditions, _ADDRESS, "caller")
        id = f"{int(self._world.draw() * 2**53):x}"
        self._caller = Caller(name, value, timeout_s, id, self._world.now_s)
        self._name, self._worker, self._network = name, worker, env.network
        self._asked: int | None = None  # the worker that has it, as far as is known
        self._error: RequestError | None = None
        self._world.after(timeout_s, self._send, False)
        self._send()

    @property
    def has_ended(self) -> bool:
        return self._error is not None or self._caller.answer is not None

    @property
    def result(self) -> list[Any]:
        """The rows of the answer. Raises the error of the request."""
        if self._error is not None:
            raise self._error
        assert self._caller.answer is not None, "the request has not ended"
        return self._caller.answer

    def _send(self, goes_on: bool = True) -> None:
        if self.has_ended:
            return
        try:
            request = self._caller.request(self._world.now_s)
        except RequestError as error:
            self._error = error
            return
        if goes_on:
            failed = partial(self._network.unanswered, self, self._receive)
            arguments = (self, self._name, request, self._receive)
            self._asked = self._worker() if self._asked is None else self._asked
            self._network.call(self, self._asked, "answer_caller", *arguments, failed=failed)

    def _receive(self, reply: Reply | RequestProgress | None) -> None:
        """Take the reply of the worker; None: it has died."""
        if reply is None or reply is RequestProgress.ABSENT:
            self._asked = None
        if not self.has_ended:
            try:
                self._caller.receive(reply or ClusterError("its worker does not answer"))
            except RequestError as error:
                self._error = error
            self._world.after(self._caller.wait_s, self._send)


@contextmanager
def user_code_of(topology: str) -> Iterator[None]:
    """Around a call of user code: raises TopologyFailed for errors that are not Sunshower's."""
    try:
        yield
    except SunshowerError:
        raise
    except user_errors() as error:
        raise TopologyFailed(
            f"topology {topology!r} was asked something and user code raised "
            f"{type(error).__name__}: {error}"
        ) from error


# ---- run -----------------------------------------------------------------------------------------

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
        snapshot = self._ask(lambda master: master.core.snapshot(master.now(), windows=True))
        return Overview(self.plan, snapshot, self._master.core.stored.error, 0.0, {})

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
        return [
            process.traces(root, lambda: self._world.now_s)
            for process in self._env.network.there.values()
            if isinstance(process, SimWorker) and not process.paused
        ]

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
            self._apply(events.Disturb(injected))
            return

        def hear() -> None:
            self._master.apply(events.Disturb(injected))

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

    def _call_master(self, what: str, *arguments: Any) -> Any:
        return self._ask(lambda master: getattr(master, what)(*arguments))

    def _state(self, look: Look | None = None, *, fails: bool = True) -> State:
        """Without a call, so no time passes."""
        state = self._master.state()
        if look is not None:
            look(self._master.status()[0])
        if fails and state == State.FAILED:
            raise TopologyFailed(self._master.core.stored.error)
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
                if result := ready():
                    return result
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

    def _pause(self, address: int) -> None:
        self._process(address).pause()
        self._machines.watch()
        if address == MASTER:
            self._plan = self._master.core.plan

    def _resume(self, address: int) -> None:
        self._check_there()
        self._machines.resume(address)

    def _call_worker(self, worker: int, what: str, *arguments: Any) -> Any:
        processes = self._env.network.there
        if not self._comes_true(lambda: worker in processes and processes[worker].ready):
            raise ClusterError(
                f"worker {worker} of {self.topology!r} does not answer\n{self._describe()}"
            )
        process = processes[worker]
        assert isinstance(process, SimWorker)
        with user_code_of(self.topology):
            return getattr(process, what)(*arguments)

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
        world, processes = self._world, self._env.network.there
        master = processes.get(MASTER)
        standing = "is down" if master is None else "is paused" if master.paused else "waits"
        lines = [f"seed {world.seed}, at {world.now_s:.6f} s: the master {standing}"]
        workers = {task.worker for task in self._env.plan.tasks} | {w for w in processes if w >= 0}
        for worker in sorted(workers):
            process = processes.get(worker)
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


# ---- cluster -------------------------------------------------------------------------------------


class SimCluster:
    """Runs topologies in one thread, on virtual time, with all randomness from one seed.

    The same seed and the same calls give the same run, event by event. `nodes`: machines that the
    processes are spread over; a process that dies restarts on any of them. `drift`: the largest
    relative error of a clock's rate. `latency_s`, `call_s`: the mean latency of a message, and the
    mean cost of a call of user code. The seed draws each of these that is None. `check`: check the
    invariants of a worker after each of its slices (AssertionError if one is violated). `date`:
    that of the clock at the beginning, with a time zone. Raises ConfigError.
    """

    name = "sim"

    def __init__(
        self,
        seed: int,
        *,
        nodes: int | None = 1,
        drift: float | None = 0.01,
        latency_s: float | None = None,
        call_s: float | None = None,
        check: bool = False,
        date: datetime = VIRTUAL_DATE,
    ) -> None:
        self._world = World(seed, date)
        self._conditions = drawn(
            self._world, nodes=nodes, drift=drift, latency_s=latency_s, call_s=call_s
        )
        self._generator = seeded(seed)
        self._check = check
        self._runs: list[SimRun] = []
        self._entered = ExitStack()

    def submit(
        self,
        graph: Graph,
        layout: Layout = Layout.PACK,
        *,
        active: bool = True,
        sample: int | None = None,
        resume: Savepoint | None = None,
    ) -> SimRun:
        if any(run.topology == graph.id and not run.stopped for run in self._runs):
            raise ClusterError(
                f"a topology {graph.id!r} is there already: stop it before it is submitted again"
            )
        network = Network(self._world, self._conditions)
        plan = make_plan(graph, layout)
        plan = plan if resume is None else resume.resumed(plan)
        place = (self._world, self._conditions, network, self._generator, plan)
        env = SimEnvironment(*place, sample, self._check)
        if resume is None:
            graph.begin_outputs()
        else:
            env.resume(resume, resume.master_state(plan, active=active))
        run = SimRun(env, active=active)
        self._runs.append(run)
        run.start()
        return run

    def close(self) -> None:
        """Stop all submitted topologies."""
        for run in self._runs:
            run.stop()

    def __enter__(self) -> Self:
        self._entered.enter_context(interruptible())
        return self

    def __exit__(self, *error: object) -> None:
        with self._entered:
            self.close()
