"""The machines of a simulated run: they start its processes, and restart those that die."""

from __future__ import annotations

from itertools import count
from math import inf

from sunshower.errors import ClusterError
from sunshower.runtime.nodes import NodeState, NodeView
from sunshower.simulation.environment import SimEnvironment
from sunshower.simulation.master import SimMaster
from sunshower.simulation.network import MASTER, SimProcess
from sunshower.simulation.worker import SimWorker

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
        there = self.processes.get(address)
        former = [zombie for zombie in self._zombies if zombie.address == address]
        for process in [*former, *([there] if there is not None else [])]:
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
        """The workers on each machine."""
        found: dict[str, list[int]] = {name: [] for name in self._names}
        for address, process in sorted(self.processes.items()):
            if address != MASTER:
                found[process.node].append(address)
        return found

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
        nodes = [
            NodeState(name, leaves_s=inf if name in self._draining else None)
            for name in self._names
        ]
        there = self.processes.items()
        return NodeView(tuple(nodes), {one: p.node for one, p in there if one != MASTER})

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
        return [one for one in [*living, *self._zombies] if isinstance(one, SimWorker)]

    def _beat(self) -> None:
        """Each worker sends a heartbeat, and the master looks for silent ones."""
        master, workers = self.processes.get(MASTER), self._workers()
        for worker in workers:
            if not worker.paused:
                worker.send_beat()
        if isinstance(master, SimMaster) and not master.paused:
            master.watch()
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
            any(one.node in self._draining for one in workers)
            or bool(self._zombies or (stored and (stored.isolated or stored.fenced)))
            or any(process.paused for process in (master, *workers))
            or any(one.clock.now() - one.lease.renewed_s > _FRESH_S for one in workers)
        )

    def _remove(self, address: int) -> None:
        process = self.processes.pop(address, None)
        if process is not None:
            process.die()
