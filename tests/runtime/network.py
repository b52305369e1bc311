"""Several workers and their master in one thread, on a network that a seed makes good or bad.

An adapter of worker_process.py and master_process.py like that of Ray, but a random generator
chooses who works next, and the clock only advances when everybody sleeps. So a worker that should
have woken itself, and a message that nobody sends again, end as "stuck".
"""

from __future__ import annotations

import math
import pickle
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from sunshower.clock import ManualClock
from sunshower.runtime.control.flight_recorder import FlightRecorder, read
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.control.master import Master
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.events.injected_faults import flipped
from sunshower.runtime.master_process import MasterProcessBase
from sunshower.runtime.plan import Plan
from sunshower.runtime.tasks.spouts.spout_task import SpoutTask
from sunshower.runtime.transport.packets import Answer
from sunshower.runtime.worker import Worker
from sunshower.runtime.worker_process import Equipment, WorkerProcessBase
from sunshower.simulation.worker import Killed
from tests.runtime.recorded import Recorded

ACTS_MAX = 100_000
FATES = ("drop", "forget", "repeat", "corrupt", "overtake", "arrive")


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What happens to a packet, as ratios of all packets, until `packets` of them have left."""

    drop: float = 0.0  # never arrives; its call fails
    forget: float = 0.0  # arrives, but its call fails all the same
    repeat: float = 0.0  # arrives twice
    corrupt: float = 0.0  # arrives with one bit flipped
    overtake: float = 0.0  # arrives after the one behind it
    unheard: float = 0.0  # news of a new life that is lost on its way from the master
    packets: int = 400  # then the network is healed: every plan ends so
    crashes: Sequence[tuple[int, int]] = ()  # (after so many packets, worker)

    def ratios(self) -> list[float]:
        """Of each fate, in the order of `FATES`; what is left is to arrive."""
        return [self.drop, self.forget, self.repeat, self.corrupt, self.overtake]


@dataclass(frozen=True, slots=True)
class Call:
    """A packet on its way."""

    sender: int
    life: int  # of the sender
    peer: int
    seq: int
    data: bytes
    heard: bool = True  # whether the answer arrives
    copy: bool = False  # nobody waits for the answer to a copy


class Node(WorkerProcessBase):
    """A living worker."""

    def __init__(self, net: Network, worker: int) -> None:
        super().__init__(worker)
        self.wake_s = 0.0  # when it continues, if no mail arrives before
        self._net = net
        number = MasterState.from_bytes(net.master_state).plan if net.master_state else 0
        self.start(net.plans[number], read(net.boxes.get(worker, b""), worker), number)
        self.greet()

    def greet(self) -> None:
        """Say hello to the master, which answers at once."""
        self._net.hellos.append(self._net.clock.now())
        self.begin(self._net.master_process.welcome(self._worker, self._crash_report))

    def unread(self) -> Iterator[bytes]:
        """Packets that were accepted and are not yet processed."""
        for fact in self.mailbox:
            if isinstance(fact, partial) and fact.func == self._receive:
                yield fact.args[1]

    def wake(self) -> None: ...

    def call_master(self, what: str, *given: Any) -> None:
        getattr(self._net.master_process, what)(*given)

    def equip(self, plan: Plan, life: int) -> Equipment:
        net, box = self._net, bytearray(FlightRecorder.size_of(plan, self._worker))
        net.boxes[self._worker] = box
        event_writer = net.sample and net.history.event_writer(net.clock, net.sample)
        recorder = FlightRecorder(box, life)
        return Equipment(net.random, net.clock, recorder, None, event_writer or None, net.clock)

    def load_plan(self, number: int) -> Plan:
        return self._net.plans[number]

    def load_transfer(self, move: int, task: int) -> TaskTransfer | None:
        packed = self._net.transfers.get((move, task))
        return None if packed is None else pickle.loads(packed)

    def save_transfer(self, move: int, task: int, transfer: TaskTransfer) -> None:
        self._net.transfers.setdefault((move, task), pickle.dumps(transfer))

    def log(self, line: str) -> None: ...


class NetMaster(MasterProcessBase):
    """The living master."""

    def __init__(self, net: Network) -> None:
        self._net = net
        super().__init__(active=True)

    def now(self) -> float:
        return self._net.clock.now()

    def wall(self) -> float:
        return self._net.clock.wall()

    def load_state(self) -> bytes | None:
        return self._net.master_state

    def save_state(self, state: bytes) -> None:
        self._net.master_state = state

    def load_plan(self, number: int) -> Plan:
        return self._net.plans[number]

    def save_plan(self, number: int, plan: Plan) -> None:
        self._net.plans[number] = plan

    def keep_plans(self, numbers: Collection[int]) -> None:
        self._net.plans = {number: self._net.plans[number] for number in numbers}

    def read_transfers(self, move: int) -> dict[int, bytes]:
        return {task: packed for (of, task), packed in self._net.transfers.items() if of == move}

    def remove_transfers(self) -> None:
        self._net.transfers.clear()

    def call_worker(self, worker: int, what: str, *given: Any) -> None:
        is_news = what == "peers" and max(given[0].values()) > 1  # all know of all first lives
        is_lost = is_news and self._net.random.random() < self._net.faults.unheard
        if worker in self._net.nodes and not is_lost:
            getattr(self._net.nodes[worker], what)(*given)

    def create_worker(self, worker: int) -> None:
        if worker not in self._net.nodes and worker not in self._net.down:
            self._net.start(worker)

    def end_worker(self, worker: int) -> None:
        self._net.nodes.pop(worker, None)
        self._net.down.pop(worker, None)

    def replace_worker(self, worker: int) -> None:
        """Nobody is silent here."""

    def look_after(self, seconds: float) -> None:
        self._net.look_s = self.now() + seconds


class Network:
    """A topology on its workers. `watch` is called after every slice of work."""

    def __init__(
        self,
        plan: Plan,
        seed: int,
        *,
        clock: ManualClock,
        faults: Faults | None = None,
        seconds_max: float = 600.0,
        sample: int | None = None,
    ) -> None:
        """`sample`: keep an event log, with the edges of every n-th tree."""
        self.seed = seed
        self.clock = clock
        self.plan = plan
        self.plans = {0: plan}  # by number
        self.random = np.random.default_rng(seed)
        self.nodes: dict[int, Node] = {}
        self.fates: Counter[str] = Counter()
        self.acts = 0
        self.hellos: list[float] = []  # when each worker said hello, the first ones included
        self.watch: list[Callable[[Worker], None]] = [Worker.check_invariants]
        self.faults = faults or Faults()
        self.crashes = deque(self.faults.crashes)
        self.history = Recorded()
        self.sample = sample
        self.boxes: dict[int, bytearray] = {}  # flight recorders, which outlive their processes
        self.transfers: dict[tuple[int, int], bytes] = {}  # (move, task) → TaskTransfer
        self.master_state: bytes | None = None
        self.look_s = math.inf  # when the master looks again
        self.down: dict[int, float] = {}  # dead workers: when each is there again
        self._seconds_max = seconds_max  # a run that is not finished by then is stuck
        self._late: list[tuple[float, Call]] = []  # packets that an experiment delays
        self._calls: defaultdict[tuple[int, int], deque[Call]] = defaultdict(deque)
        self._answers: list[tuple[Call, Answer | None]] = []
        self.master_process = NetMaster(self)
        for worker in self.plan.workers:
            self.start(worker)

    # ---- what tests ask and do -----------------------------------------------------------------

    def run(self) -> None:
        """Until every spout is done and nothing is on its way."""
        while not self.finished:
            self.act()

    @property
    def finished(self) -> bool:
        """Nothing is on its way, nobody is down, every worker is finished."""
        return (
            not self._answers
            and not self._late
            and not self.down
            and not any(self._calls.values())
            and not any(node.mailbox or node.greeting for node in self.nodes.values())
            and all(node.core.finished for node in self.nodes.values())
            and not self.master.restless
        )

    def until(self, condition: Callable[[], bool]) -> None:
        """Until something that will happen has happened."""
        while not condition():
            assert not self.finished, f"seed {self.seed}: finished before it happened"
            self.act()

    def act(self) -> None:
        """One thing happens, chosen at random; if nothing can, time passes."""
        while self.crashes and self.fates.total() >= self.crashes[0][0]:
            self.crash(self.crashes.popleft()[1])
        self.acts += 1
        assert self.acts < ACTS_MAX, f"seed {self.seed}: busy without end\n{self.describe()}"
        can = list(self._possible())
        if can:
            can[int(self.random.integers(len(can)))]()
            return
        wakes = [node.wake_s for node in self.nodes.values()]
        late = [at_s for at_s, _ in self._late]
        soonest = min([*wakes, *late, *self.down.values(), self.look_s])
        assert soonest < self._seconds_max, f"seed {self.seed}: stuck\n{self.describe()}"
        self.clock.advance(max(0.0, soonest - self.clock.now()) + 1e-9)

    def crash(self, worker: int) -> None:
        """SIGKILL: its mail, its answers, and a part of what it had sent are gone."""
        if self.nodes.pop(worker, None) is None:
            return  # it is down already
        self.down[worker] = self.clock.now() + float(self.random.uniform(0.05, 0.6))
        for (sender, _), calls in self._calls.items():
            for _ in range(int(self.random.integers(len(calls) + 1)) if sender == worker else 0):
                calls.pop()

    def spouts(self) -> Iterator[SpoutTask]:
        """All living spout tasks."""
        for node in self.nodes.values():
            yield from node.core._wired.spouts.values()

    @property
    def master(self) -> Master:
        return self.master_process.core

    @property
    def state(self) -> State:
        return self.master.state(self.clock.now())

    def steer(self, what: Callable[[Master], Any]) -> None:
        """A client requests something of the master."""
        self.master_process.change(lambda: what(self.master))

    def kill_master(self) -> None:
        """The next master has the stored state, and asks the workers for the rest."""
        self.look_s = math.inf
        self.master_process = NetMaster(self)

    def describe(self) -> str:
        """Who waits for what."""
        lines = [f"now {self.clock.now():.3f} s, fates {dict(self.fates)}, down {self.down}"]
        for worker, node in sorted(self.nodes.items()):
            wired = node.core._wired
            queues = {task: len(inbox) for task, inbox in wired.inboxes.items() if inbox.entries}
            full = [(c.source, c.target, c.load) for c in wired.channels.values() if c.full]
            spouts = [(s.task.component, len(s.pending), s.done) for s in wired.spouts.values()]
            lines.append(
                f"worker {worker} {[t.component for t in self.plan.tasks_on(worker)]} life "
                f"{node.core.life} wakes {node.wake_s:.3f} idle {node.core.idle} queues {queues} "
                f"full {full} spouts (pending, done) {spouts}"
            )
        return "\n".join(lines)

    def start(self, worker: int) -> None:
        """Start a worker's first process, or the next one after a death."""
        self.down.pop(worker, None)
        self.nodes[worker] = Node(self, worker)

    # ---- what can happen -----------------------------------------------------------------------

    def _possible(self) -> Iterator[Callable[[], None]]:
        now = self.clock.now()
        for node in self.nodes.values():
            if node.mailbox or node.greeting or node.wake_s <= now:
                yield partial(self._work, node)
        for peer_link, calls in self._calls.items():
            if calls:
                yield partial(self._arrive, peer_link)
        if self._answers:
            yield self._answer
        for at_s, call in self._late:
            if at_s <= now:
                yield partial(self._come_late, at_s, call)
        for worker, at_s in self.down.items():
            if at_s <= now:
                yield partial(self.start, worker)
        if self.look_s <= now:
            yield self._look

    def _look(self) -> None:
        self.look_s = math.inf
        self.master_process.look()

    def _work(self, node: Node) -> None:
        try:
            node.read_mail()
            if node.greeting:
                node.greet()
            wait_s = node.core.step()
        except Killed:
            self.crash(node.core.worker)
            return
        now = self.clock.now()
        node.wake_s = math.inf if wait_s is None else now + wait_s
        if wait_s != 0 or self.random.random() < 0.3:  # a slice's time is over
            self._send(node.core)
        for look in self.watch:
            look(node.core)
        node.send_stats(now)

    def _send(self, core: Worker) -> None:
        """With what an experiment does to the packets."""
        for peer, seq, data in core.outgoing():
            fate = core.fate(peer)
            call = Call(core.worker, core.life, peer, seq, data, fate.heard)
            if fate.corrupt:
                call = replace(call, data=flipped(data, self.random))
            if not fate.delays_s and fate.fails:
                self._answers.append((call, None))
            for delay_s in fate.delays_s:
                if delay_s:
                    self._late.append((self.clock.now() + delay_s, call))
                else:
                    self._calls[core.worker, peer].append(call)
                call = replace(call, copy=True)

    def _come_late(self, at_s: float, call: Call) -> None:
        self._late.remove((at_s, call))
        self._calls[call.sender, call.peer].append(call)

    def _arrive(self, peer_link: tuple[int, int]) -> None:
        calls = self._calls[peer_link]
        fate = self._fate()
        if fate == "overtake" and len(calls) > 1:
            calls[0], calls[1] = calls[1], calls[0]
        call = calls.popleft()
        node = self.nodes.get(call.peer)
        if node is None or fate == "drop":
            self._reply(call, None)
            return
        data = flipped(call.data, self.random) if fate == "corrupt" else call.data
        answer = node.accept(data)
        assert fate != "corrupt" or answer is Answer.REFUSED, f"seed {self.seed}: a bit was missed"
        if fate == "repeat":
            assert node.accept(data) is not Answer.ACCEPTED, f"seed {self.seed}: twice"
        unheard = fate == "forget" or not call.heard
        self._reply(call, None if unheard else answer)

    def _reply(self, call: Call, answer: Answer | None) -> None:
        if not call.copy:
            self._answers.append((call, answer))

    def _answer(self) -> None:
        call, answer = self._answers.pop(int(self.random.integers(len(self._answers))))
        node = self.nodes.get(call.sender)
        if node is not None and node.core.life == call.life:
            node.put(partial(node.core.answered, call.peer, call.seq, answer))

    def _fate(self) -> str:
        ratios = self.faults.ratios()
        healed = self.fates.total() >= self.faults.packets
        chances = [0.0] * len(ratios) if healed else ratios
        fate = str(self.random.choice(FATES, p=[*chances, 1 - sum(chances)]))
        self.fates[fate] += 1
        return fate
