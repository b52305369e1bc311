"""The simulated process around a worker: what `actors/worker.py` is on Ray.

Its main thread takes calls at once, unless it is paused; its loop works in slices. A slice is
computed at one moment of the world; its cost passes afterwards, and then its packets leave.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from math import inf
from mmap import mmap
from typing import Any

from sunshower.errors import SunshowerError, TopologyFailed
from sunshower.runtime.control.crash_report import CrashReport
from sunshower.runtime.control.flight_recorder import read
from sunshower.runtime.control.master import DesiredState, Welcome
from sunshower.runtime.control.placement import placed
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.events.event_log import Entry, EventWriter, What
from sunshower.runtime.events.injected_faults import flipped
from sunshower.runtime.tasks.user_code import TaskError
from sunshower.runtime.transport.packets import Answer
from sunshower.runtime.transport.peer_link import PacketReceiver
from sunshower.runtime.worker import Worker
from sunshower.simulation.box import SimFlightRecorder
from sunshower.simulation.clocks import HistoryClock
from sunshower.simulation.network import MASTER, Process
from sunshower.simulation.packet import Packet
from sunshower.simulation.site import SimEnvironment

_TELL_S = 0.25  # interval of statistics to the master, while they change
_TELL_SOON_S = 0.02  # mean delay of the first statistics after a change
_STEPS_MAX = 16  # steps of one slice
_GO_ON = 0.8  # probability that a slice continues after a step, if there is work


class Killed(BaseException):
    """SIGKILL in the middle of user code: ends the simulated process that runs it."""


class SimWorker(Process):
    """One process with some tasks of a topology."""

    def __init__(
        self, site: SimEnvironment, worker: int, node: str, ends: Callable[[Process], None]
    ) -> None:
        """`ends`: called if user code, or the watchdog, ends the process."""
        super().__init__(site.world, site.conditions, worker, node)
        self.core: Worker | None = None  # None until the first Welcome
        self.broken = False  # an error has ended the loop
        self._doomed = False  # whether its last slice has begun
        self._site = site
        self._network = site.network
        self._ends = ends
        self._packet_receiver: PacketReceiver | None = None
        self._greeting = False  # between hello and the start of the new life
        self._waiting: list[Packet] = []  # packets for the life that begins
        self._mailbox: deque[Callable[[], Any]] = deque()
        self._busy_until_s = 0.0  # when the current slice ends
        self._wakes_s = inf  # when the next slice begins
        self._transfer: dict[int, TaskTransfer] = {}  # of tasks that stay in this process
        self._move = 0
        self._told: tuple[object, ...] | None = None  # the last reported pulse
        self._tell_at_s = 0.0  # on the world's clock
        self._will_tell = False
        _, box = site.boxes.get(worker, ("", b""))  # also from another living machine
        self._crash_report = read(box, worker)
        self._box: SimFlightRecorder | None = None
        self._entries: list[Entry] = []  # its part of the event log
        self._kept = 0  # how many of them a death cannot undo
        site.entries.append(self._entries)

    # ---- remote calls ----------------------------------------------------------------------

    def deliver(self, packet: Packet) -> None:
        """Receive a packet of a peer. The answer says whether it will be processed."""
        if self._greeting:
            self._waiting.append(packet)  # the sender knew of this life before it began
            return
        answer = Answer.STALE
        if self._packet_receiver is not None and not self.broken:
            answer = self._packet_receiver.answer(packet.data)
            if answer is Answer.ACCEPTED:
                self._put(partial(self._receive, self._packet_receiver, packet.data))
        packet.answer(self, answer)

    def peers(self, lives: dict[int, int], crash_reports: list[CrashReport]) -> None:
        """The master sends the lives of all workers, and the crash reports of former ones."""
        self._put(lambda: self._core.peers(lives, crash_reports))

    def report(self) -> None:
        """A new master requests the statistics of this worker."""
        self._put(self._forget_told)

    def desired_state(self, desired_state: DesiredState) -> None:
        """The master sends a new DesiredState."""
        self._put(lambda: self._core.desired_state(desired_state))

    def pack(self, move: int, leaving: list[int]) -> None:
        """End this life for rebalance number `move`, and store the state of `leaving` tasks."""
        self._put(partial(self._pack, move, leaving))

    def again(self, move: int) -> None:
        """Begin a new life, after the move of rebalance number `move`."""
        self._put(partial(self._begin_again, move))

    # ---- start and end -----------------------------------------------------------------------

    def say_hello(self) -> None:
        """Say hello to the master; `welcomed` is called with its answer."""
        self._greeting = True
        again = partial(self.do, self.say_hello)
        failed = partial(self._network.when_there, MASTER, again)
        hello = (self, self.welcomed, self._crash_report)
        self._network.call(self, MASTER, "hello", *hello, failed=failed)

    def welcomed(self, welcome: Welcome | None) -> None:
        """Handle the master's answer; None: it died meanwhile, so say hello to the next master."""
        if welcome is None:
            self.say_hello()
            return
        self._greeting = False
        self._guarded(partial(self._begin, welcome))
        waiting, self._waiting = self._waiting, []
        for packet in waiting:
            self.deliver(packet)
        self._put(self._forget_told)

    def die(self) -> None:
        super().die()
        self._take_back()
        for packet in self._waiting:
            packet.fail()
        if self._box is not None:
            self._box.note_death(self.died_s)

    def close(self) -> list[TaskError]:
        """Close all tasks. Returns the errors that they raised."""
        return [] if self.core is None else self.core.close()

    @property
    def ready(self) -> bool:
        """Whether `results` can be called."""
        return not (self.core is None or self._greeting or self.broken or self.paused)

    def results(self, component: str) -> list[Any]:
        """`result()` of the component's tasks here."""
        return self._core.results(component)

    # ---- the loop ------------------------------------------------------------------------------

    @property
    def _core(self) -> Worker:
        assert self.core is not None, f"worker {self.address} works, and was never welcomed"
        return self.core

    def _begin(self, welcome: Welcome) -> None:
        """Create a new core: the process has started, or a rebalance has moved tasks."""
        site, worker = self._site, self.address
        plan = placed(site.plan, welcome.places)
        stay, transfer = self._transfer, dict[int, TaskTransfer]()
        for task in plan.tasks_on(worker):
            if task.id in stay:
                transfer[task.id] = stay[task.id]
            elif (packed := site.transfer.get((welcome.move, task.id))) is not None:
                transfer[task.id] = deepcopy(packed)
        self._move, self._transfer = welcome.move, {}
        self._packet_receiver = PacketReceiver(worker, welcome.life)
        buffer = mmap(
            -1, SimFlightRecorder.size_of(plan, worker)
        )  # mostly empty pages, which cost nothing
        site.boxes[worker] = (self.node, buffer)
        call_s = site.conditions.call_s
        self._box = SimFlightRecorder(buffer, welcome.life, self._world, self.clock, call_s)
        self.clock.slept = self._watch
        self.core = Worker(
            plan,
            worker,
            welcome.life,
            site.generator,
            self.clock,
            self._packet_receiver,
            self._box,
            delay_s=welcome.delay_s,
            quarantined=welcome.quarantined,
            transfer=transfer,
            event_writer=self._event_writer(),
            marks=site.marks,
        )
        self.core.welcome(welcome, self._crash_report)
        self._forget_told()

    def _event_writer(self) -> EventWriter | None:
        if self._site.sample is None:
            return None
        clock = HistoryClock(self._world, self.clock)
        return EventWriter(clock, self._entries.append, self._site.sample)

    def _put(self, fact: Callable[[], Any]) -> None:
        self._mailbox.append(fact)
        self._wake(self._world.now_s)

    def _wake(self, at_s: float) -> None:
        """Begin a slice at `at_s`, or as soon as the current one ends."""
        at_s = max(at_s, self._busy_until_s)
        if at_s < self._wakes_s:
            self._wakes_s = at_s
            self._world.at(at_s, self.do, self._work, at_s)

    def _work(self, due_s: float) -> None:
        """Run one slice. It is computed now; its cost passes until it ends."""
        if due_s != self._wakes_s:
            return  # an earlier wake replaced this one
        self._wakes_s = inf
        if self.broken or self._greeting:
            return  # the Welcome wakes it
        if self._box is not None:
            self._box.new_slice()
        self._kept = len(self._entries)
        wait_s = self._guarded(self._slice)
        if self._site.check and self.core is not None:
            self.core.check_invariants()
        self._busy_until_s = inf if self._doomed else self._world.now_s + self.clock.ahead_s
        self.clock.ahead_s = 0.0
        if self._mailbox:
            self._wake(self._world.now_s)
        elif wait_s is not None:
            self._wake(self._busy_until_s + self.clock.in_world_s(wait_s))

    def _slice(self) -> float | None:
        """Process the mailbox, run steps, send packets. Returns the wait, as `Worker.step` does."""
        while self._mailbox:
            self._mailbox.popleft()()
            if self._greeting:
                return None
        core, wait_s = self._core, None
        slice_s = core.plan.graph.config.slice_s
        for _ in range(_STEPS_MAX):
            wait_s = core.step()
            if wait_s != 0 or self.clock.ahead_s >= slice_s or self._world.draw() > _GO_ON:
                break
        self.clock.ahead_s += self._world.about(0.1 * self._site.conditions.call_s)
        self._send()
        return wait_s

    def _guarded(self, work: Callable[[], float | None]) -> float | None:
        """Do some work; an error in it ends the loop, or the process.

        Raises errors that user code did not cause: a defect of the core ends the simulation.
        """
        try:
            return work()
        except Killed:
            self._doomed = True
            self._world.after(self.clock.ahead_s, self._ends, self)
        except SunshowerError as error:
            self._give_up(str(error))
        except Exception as error:
            self.broken = True
            error.add_note(f"worker {self.address} hit a defect of sunshower itself; report it")
            raise
        return None

    def _give_up(self, why: str) -> None:
        self.broken = True
        self._network.call(self, MASTER, "broken", why)

    # ---- messages to others --------------------------------------------------------------------

    def _send(self) -> None:
        core, network, left_s = self._core, self._network, self._world.now_s + self.clock.ahead_s
        for peer, seq, data in core.outgoing():
            fate = core.fate(peer)
            sent = flipped(data, self._site.generator) if fate.corrupt else data
            hear = partial(self._answered, core, peer, seq)
            packet = Packet(network, self, peer, sent, hear, heard=fate.heard)
            for late_s in fate.delays_s:
                packet.leave(left_s, late_s)
            if not fate.delays_s:
                packet.fail()
        self._tell_soon()

    def _answered(self, core: Worker, peer: int, seq: int, answer: Answer | None) -> None:
        """Handle a peer's answer to a packet; None: the call failed."""
        hear = partial(core.answered, peer, seq, answer)
        busy = self._world.now_s < self._busy_until_s or self._greeting or self.broken
        if busy or answer is not Answer.ACCEPTED:
            self._put(hear)
        else:  # this creates no work, but may release the next packet
            hear()
            self._guarded(self._send)

    def _tell_soon(self) -> None:
        """Schedule statistics to the master, after a change."""
        if not self._will_tell:
            self._will_tell = True
            soon_s = self._world.now_s + self._world.about(_TELL_SOON_S)
            self._world.at(max(soon_s, self._tell_at_s), self.do, self._tell)

    def _tell(self) -> None:
        if self._world.now_s < self._busy_until_s:
            self._world.at(self._busy_until_s, self.do, self._tell)
            return
        self._will_tell = False
        if self._greeting or self.broken:
            return  # the next life reports again
        self._core.notices()  # empty the log messages, which are not kept
        pulse = self._core.pulse()
        if pulse != self._told:
            self._told = pulse
            self._tell_at_s = self._world.now_s + self.clock.in_world_s(_TELL_S)
            self._network.call(self, MASTER, "hear", self._core.stats())

    def _forget_told(self) -> None:
        self._told, self._tell_at_s = None, 0.0

    # ---- helpers -------------------------------------------------------------------------------

    def _receive(self, packet_receiver: PacketReceiver, data: bytes) -> None:
        if packet_receiver is self._core.packet_receiver:  # not that of a former life
            self._core.receive(data)

    def _pack(self, move: int, leaving: list[int]) -> None:
        if self._move >= move:
            return  # an old message
        packed = self._core.pack(leaving)
        self._kept = len(self._entries)  # the TaskTransfers contain their effects
        for task, transfer in packed.items():
            if task in leaving and (move, task) not in self._site.transfer:
                self._site.transfer[move, task] = self._copy(task, transfer)
        self._network.call(self, MASTER, "packed", self._core.stats())

    def _take_back(self) -> None:
        """Remove the events of the last slice that are later than the death of the process.

        The user code was called nevertheless, and its external effects stay: WROTE events stay, and
        all events of a worker with a spout whose source may have committed what it was told.
        """
        plan = None if self.core is None else self.core.plan
        mine = [] if plan is None else [s for s in plan.spouts if s.worker == self.address]
        if plan is None or any(not plan.component(s).level.counts_records for s in mine):
            return
        last = self._entries[self._kept :]
        self._entries[self._kept :] = [
            one for one in last if one.at_s <= self.died_s or one.what is What.WROTE
        ]

    def _copy(self, task: int, transfer: TaskTransfer) -> TaskTransfer:
        try:
            return deepcopy(transfer)
        except Exception as error:
            component = next(t.component for t in self._core.plan.tasks if t.id == task)
            raise TopologyFailed(
                f"{component!r} cannot move to another process: what its snapshot() returned, or "
                f"a message id, cannot be copied ({type(error).__name__}: {error}). Return plain "
                "values"
            ) from error

    def _begin_again(self, move: int) -> None:
        if self._move >= move:
            return
        self._transfer, self._crash_report = self._core.pack(()), None
        self._greeting = True
        self._world.after(self.clock.ahead_s, self.do, self.say_hello)

    def _watch(self) -> None:
        """The watchdog: end the process if a call of user code has slept for too long."""
        box, limit_s = self._box, self._core.plan.graph.config.block_max_s
        call = None if box is None else box.running()
        if box is not None and call is not None and self.clock.now() - call.since_s >= limit_s:
            found_s = box.begun_s + self.clock.in_world_s(limit_s) * self._world.between(1, 9 / 8)
            self.clock.ahead_s = min(self.clock.ahead_s, found_s - self._world.now_s)
            box.testify("".join(traceback.format_stack()))
            raise Killed
