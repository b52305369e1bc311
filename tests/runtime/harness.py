"""Several workers in one thread, joined by a network that a seed makes good or bad.

It does what the Ray shell does, in the same order (mail first, then a slice of work, then the
packets), but who is next is drawn by lot, and the clock only moves when everybody sleeps. So a
worker that should have woken itself, and a message that nobody sends again, end as "stuck".
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from sunshower.clock import ManualClock
from sunshower.runtime.control.crash_report import CrashReport
from sunshower.runtime.control.flight_recorder import FlightRecorder, read
from sunshower.runtime.control.master import Master, Welcome
from sunshower.runtime.control.placement import placed
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.events.injected_faults import flipped
from sunshower.runtime.plan import Plan, Task
from sunshower.runtime.tasks.spouts.spout_task import SpoutTask
from sunshower.runtime.transport.packets import Answer
from sunshower.runtime.worker import Worker
from tests.runtime.recorded import Recorded

ACTS_MAX = 100_000


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What befalls a packet, as ratios of all packets, until `packets` of them have left."""

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


class Killed(BaseException):
    """SIGKILL in the middle of user code: a bolt of a test raises it."""


FATES = ("drop", "forget", "repeat", "corrupt", "overtake", "arrive")


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


@dataclass(slots=True)
class Node:
    """A living worker, and when it wants to go on if no mail comes before."""

    core: Worker
    mail: deque[Callable[[], Any]] = field(default_factory=deque)
    wake_s: float = 0.0

    def post(self, fact: Callable[[], Any]) -> None:
        self.mail.append(fact)

    def unread(self) -> Iterator[bytes]:
        """Packets that were accepted and are not yet looked at."""
        for fact in self.mail:
            if isinstance(fact, partial) and fact.func == self.core.receive:
                yield fact.args[0]


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
        """`sample`: keep a history, and the edges of every so manieth tree."""
        self.seed = seed
        self.clock = clock
        self.plan = plan
        self.random = np.random.default_rng(seed)
        self.nodes: dict[int, Node] = {}
        self.fates: Counter[str] = Counter()
        self.acts = 0
        self.alarms: list[float] = []  # when somebody else wants to go on
        self.hellos: list[float] = []  # when each worker said hello, the first ones included
        self.watch: list[Callable[[Worker], None]] = [check_invariants]
        self._seconds_max = seconds_max  # a run that is not finished by then is stuck
        self._faults = faults or Faults()
        self.crashes = deque(self._faults.crashes)
        self.master = Master(self.plan)
        self.history = Recorded()
        self._sample = sample
        self._late: list[tuple[float, Call]] = []  # packets that an experiment delays
        self._calls: defaultdict[tuple[int, int], deque[Call]] = defaultdict(deque)
        self._answers: list[tuple[Call, Answer | None]] = []
        self._boxes: dict[int, bytearray] = {}  # what survives a worker's process
        self._down: dict[int, float] = {}  # dead workers: when each is there again
        for worker in self.plan.workers:
            self._start(worker)

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
            and not self._down
            and not any(self._calls.values())
            and not any(node.mail for node in self.nodes.values())
            and all(node.core.finished for node in self.nodes.values())
        )

    def until(self, condition: Callable[[], bool]) -> None:
        """Until something that will happen has happened."""
        while not condition():
            assert not self.finished, f"seed {self.seed}: finished before it happened"
            self.act()

    def act(self) -> None:
        """One thing happens, drawn by lot; if nothing can, time passes."""
        while self.crashes and self.fates.total() >= self.crashes[0][0]:
            self.crash(self.crashes.popleft()[1])
        self.acts += 1
        assert self.acts < ACTS_MAX, f"seed {self.seed}: busy without end\n{self.describe()}"
        can = list(self._possible())
        if can:
            can[int(self.random.integers(len(can)))]()
            return
        wakes = [node.wake_s for node in self.nodes.values()]
        soonest = min(
            [*wakes, *(at_s for at_s, _ in self._late), *self._down.values(), *self.alarms]
        )
        assert soonest < self._seconds_max, f"seed {self.seed}: stuck\n{self.describe()}"
        self.clock.advance(max(0.0, soonest - self.clock.now()) + 1e-9)

    def crash(self, worker: int) -> None:
        """SIGKILL: its mail, its answers, and a part of what it had sent are gone."""
        if self.nodes.pop(worker, None) is None:
            return  # it is down already
        self._down[worker] = self.clock.now() + float(self.random.uniform(0.05, 0.6))
        for (sender, _), calls in self._calls.items():
            for _ in range(int(self.random.integers(len(calls) + 1)) if sender == worker else 0):
                calls.pop()

    def spouts(self) -> Iterator[SpoutTask]:
        """All living spout tasks."""
        for node in self.nodes.values():
            yield from node.core._wired.spouts.values()

    def drain(self) -> None:
        """Somebody asks all spouts to end."""
        for node in self.nodes.values():
            node.post(node.core.drain)

    def describe(self) -> str:
        """Who waits for what."""
        lines = [f"now {self.clock.now():.3f} s, fates {dict(self.fates)}, down {self._down}"]
        for worker, node in sorted(self.nodes.items()):
            core = node.core
            inboxes = {t: len(i.entries) for t, i in core._wired.inboxes.items() if i.entries}
            full = [
                (c.source, c.target, c.load, c.window)
                for c in core._wired.channels.values()
                if c.full
            ]
            spouts = [(s.task.component, len(s.pending), s.done) for s in core._spouts]
            lines.append(
                f"worker {worker} {[t.component for t in self.plan.tasks_on(worker)]} life "
                f"{core.life} wakes {node.wake_s:.3f} idle {core.idle} inboxes {inboxes} full "
                f"{full} spouts (pending, done) {spouts}"
            )
        return "\n".join(lines)

    # ---- what can happen -----------------------------------------------------------------------

    def _possible(self) -> Iterator[Callable[[], None]]:
        now = self.clock.now()
        for node in self.nodes.values():
            if node.mail or node.wake_s <= now:
                yield partial(self._work, node)
        for peer_link, calls in self._calls.items():
            if calls:
                yield partial(self._arrive, peer_link)
        if self._answers:
            yield self._answer
        for at_s, call in self._late:
            if at_s <= now:
                yield partial(self._come_late, at_s, call)
        for worker, at_s in self._down.items():
            if at_s <= now:
                yield partial(self._start, worker)

    def _start(self, worker: int) -> None:
        """Life 1, or the next one after a death."""
        self._down.pop(worker, None)
        crash_report = read(self._boxes[worker], worker) if worker in self._boxes else None
        self.nodes[worker] = Node(self._begin(worker, crash_report, {}))

    def _begin(
        self, worker: int, crash_report: CrashReport | None, transfer: dict[int, TaskTransfer]
    ) -> Worker:
        """Hello to the master, who tells everybody."""
        now = self.clock.now()
        self.hellos.append(now)
        welcome = self.master.hello(worker, now, crash_report)
        plan = placed(self.plan, welcome.places)
        self._fetch(plan.tasks_on(worker), welcome, transfer)
        self._boxes[worker] = bytearray(FlightRecorder.size_of(plan, worker))
        sample = self._sample
        core = Worker(
            plan,
            worker,
            welcome.life,
            self.random,
            self.clock,
            recorder=FlightRecorder(self._boxes[worker], welcome.life),
            delay_s=welcome.delay_s,
            quarantined=welcome.quarantined,
            transfer=transfer,
            event_writer=None if sample is None else self.history.event_writer(self.clock, sample),
        )
        core.welcome(welcome, crash_report)
        crash_reports = list(self.master.crash_reports.values())
        for other, node in self.nodes.items():
            heard = welcome.life == 1 or self.random.random() >= self._faults.unheard
            if other != worker and heard:
                node.post(partial(node.core.peers, welcome.lives, crash_reports))
        return core

    def _fetch(
        self, tasks: list[Task], welcome: Welcome, transfer: dict[int, TaskTransfer]
    ) -> None:
        """What of the luggage of a worker's tasks is in the store; see steered.py."""

    def _work(self, node: Node) -> None:
        try:
            while node.mail:
                node.mail.popleft()()
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
        if self.random.random() < 0.1:  # now and then it tells how it stands
            self.master.hear(node.core.stats(), now)

    def _send(self, core: Worker) -> None:
        """With what an experiment does to the packets."""
        for peer, seq, data in core.outgoing():
            fate = core.fate(peer)
            call = Call(core.worker, core.life, peer, seq, data, fate.heard)
            if fate.corrupt:
                call = replace(call, data=flipped(data, self.random))
            if not fate.delays_s:
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
        answer = self._hand_over(node, data)
        assert fate != "corrupt" or answer is Answer.REFUSED, f"seed {self.seed}: a bit was missed"
        if fate == "repeat":
            assert self._hand_over(node, data) is not Answer.ACCEPTED, f"seed {self.seed}: twice"
        unheard = fate == "forget" or not call.heard
        self._reply(call, None if unheard else answer)

    def _reply(self, call: Call, answer: Answer | None) -> None:
        if not call.copy:
            self._answers.append((call, answer))

    def _hand_over(self, node: Node, data: bytes) -> Answer:
        answer = node.core.packet_receiver.answer(data)
        if answer is Answer.ACCEPTED:
            node.post(partial(node.core.receive, data))
        return answer

    def _answer(self) -> None:
        call, answer = self._answers.pop(int(self.random.integers(len(self._answers))))
        node = self.nodes.get(call.sender)
        if node is not None and node.core.life == call.life:
            node.post(partial(node.core.answered, call.peer, call.seq, answer))

    def _fate(self) -> str:
        ratios = self._faults.ratios()
        healed = self.fates.total() >= self._faults.packets
        chances = [0.0] * len(ratios) if healed else ratios
        fate = str(self.random.choice(FATES, p=[*chances, 1 - sum(chances)]))
        self.fates[fate] += 1
        return fate


def check_invariants(core: Worker) -> None:
    """Every book of a worker is in order, and no more is pending than was allowed."""
    for acker in core._wired.ackers.values():
        acker.ledger.check_invariants()
    for spout in core._wired.spouts.values():
        spout.pending.check_invariants()
        held = len(spout.pending) + len(spout.replays.line)
        assert held <= core.plan.graph.config.spout_slots
