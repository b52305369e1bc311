"""The simulated process around a worker; on Ray, actors/worker.py.

Its main thread takes calls at once, unless it is paused; its loop works in slices. A slice is
computed at one moment of the world; its cost passes afterwards, and then its packets leave.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from math import inf
from mmap import mmap
from typing import Any

from sunshower.errors import EndsProcess, SunshowerError
from sunshower.runtime.cluster import MASTER
from sunshower.runtime.control import events
from sunshower.runtime.control.events import Welcome
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.events.event_log import Entry, EventWriter, What
from sunshower.runtime.events.injected_faults import flipped
from sunshower.runtime.plan import Plan, Task
from sunshower.runtime.tasks.flight_recorder import FlightRecorder, Running, read
from sunshower.runtime.tracking.ids import NO_IDS, U64
from sunshower.runtime.transport.packets import Answer
from sunshower.runtime.value_copies import pickled_copy
from sunshower.runtime.worker import Worker
from sunshower.runtime.worker_process import Equipment, WorkerProcessBase
from sunshower.simulation.network import (
    STATE,
    HistoryClock,
    ProcessClock,
    SimEnvironment,
    SimPacket,
    SimProcess,
    World,
)
from sunshower.topologies.requests import Request

_REPORT_SOON_S = 0.02  # mean delay of the first statistics after a change
_STEPS_MAX = 16  # steps of one slice
_GO_ON = 0.8  # probability that a slice continues after a step, if there is work


# ---- flight recorder -----------------------------------------------------------------------------

_NOBODY = -1


class SimFlightRecorder(FlightRecorder):
    """Keeps what the real one notes, and writes it when its process dies.

    It also adds the cost of each call to the clock. A slice is computed at one moment of the world,
    but the process may be killed while it lasts: so the time of each call in the slice is kept.
    """

    def __init__(
        self, buffer: mmap, life: int, world: World, clock: ProcessClock, call_s: float
    ) -> None:
        super().__init__(buffer, life)
        self.begun_s = 0.0  # start of the current or last call, in the world's time
        self._world = world
        self._clock = clock
        self._call_s = call_s
        self._task = _NOBODY
        self._since_s = 0.0  # on the process's clock
        self._called_with = NO_IDS
        self._calls: list[tuple[float, float, int, U64]] = []  # of this slice: start, end, call

    def begin(self, task: int, roots: U64, now: float) -> None:
        if self._task != _NOBODY:  # the next record of the same call
            self._note_call()
        self._task, self._called_with, self._since_s = task, roots, now
        self.begun_s = self._world.now_s + self._clock.ahead_s

    def end(self) -> None:
        if self._task == _NOBODY:
            return  # no records were noted
        self._clock.ahead_s += self._world.about(self._call_s)
        self._note_call()
        self._task = _NOBODY

    def running(self) -> Running | None:
        return None if self._task == _NOBODY else Running(self._task, self._since_s)

    def new_slice(self) -> None:
        """Forget the calls of the last slice: no kill can interrupt them any more."""
        self._calls.clear()

    def note_death(self, time_s: float) -> None:
        """Note what the process, which dies at `time_s`, was executing then."""
        hit = (self._task, self._called_with)  # a call may have ended the process itself
        for begun_s, ended_s, task, roots in self._calls:
            if begun_s <= time_s < ended_s:
                hit = (task, roots)
        if hit[0] != _NOBODY:
            super().begin(*hit, self._clock.now())

    def _note_call(self) -> None:
        ended_s = self._world.now_s + self._clock.ahead_s
        self._calls.append((self.begun_s, ended_s, self._task, self._called_with))


# ---- worker --------------------------------------------------------------------------------------


class Killed(EndsProcess):
    """SIGKILL in the middle of user code: ends the simulated process that runs it."""


class SimWorker(SimProcess, WorkerProcessBase):
    """One process with some tasks of a topology."""

    def __init__(
        self,
        env: SimEnvironment,
        worker: int,
        node: str,
        ends: Callable[[SimProcess], None],
    ) -> None:
        """`ends`: called if user code, or the watchdog, ends the process."""
        SimProcess.__init__(self, env.world, env.conditions, worker, node)
        WorkerProcessBase.__init__(self, worker)
        self.broken = False  # an error has ended the loop
        self._doomed = False  # whether its last slice has begun
        self._env = env
        self._network = env.network
        self._ends = ends
        self._waiting: list[SimPacket] = []  # packets for the life that begins
        self._busy_until_s = 0.0  # when the current slice ends
        self._wakes_s = inf  # when the next slice begins
        self._will_report = False
        self._box: SimFlightRecorder | None = None
        self._entries: list[Entry] = []  # its part of the event log
        self._kept = 0  # how many of them a death cannot undo
        env.entries.append(self._entries)
        _, box = env.recorders.get(worker, ("", b""))  # also from another living machine
        saved = env.store.get(STATE)
        number = MasterState.from_bytes(saved).plan if saved else 0
        self.start(self.load_plan(number), read(box, worker), number)

    # ---- remote calls, besides the methods of WorkerProcessBase ----------------------------------

    def deliver(self, packet: SimPacket) -> None:
        """Receive a packet of a peer. The answer says whether it will be processed."""
        if self.greeting:
            self._waiting.append(packet)  # the sender knew of this life before it began
        else:
            packet.answer(self, Answer.STALE if self.broken else self.accept(packet.data))

    def answer_caller(
        self, caller: SimProcess, name: str, request: Request, hear: Callable[[Any], None]
    ) -> None:
        """A caller sends a request, perhaps again."""
        self._network.answer(self, caller, hear, self.ask(name, [request])[0])

    def say_hello(self) -> None:
        """Say hello to the master; `welcomed` is called with its answer."""
        again = partial(self.do, self.say_hello)
        failed = partial(self._network.when_there, MASTER, again)
        hello = events.Hello(self.address, self._crash_report)
        self._network.call(self, MASTER, "ask", hello, self, self.welcomed, failed=failed)

    def welcomed(self, welcome: Welcome | None) -> None:
        """Handle the master's answer; None: it died meanwhile, so say hello to the next master."""
        if welcome is None:
            self.say_hello()
            return
        self._guarded(partial(self.begin, welcome))
        waiting, self._waiting = self._waiting, []
        for packet in waiting:
            self.deliver(packet)
        self.report()

    def send_beat(self) -> None:
        """Send a heartbeat. Only while the cluster watches: see cluster.py."""
        sent_s = self.clock.now()
        self.tick(sent_s)
        hear = partial(self._beat_answered, self.life, sent_s)
        self._network.call(self, MASTER, "ask", events.Beat(self.address, self.life), self, hear)

    def resume(self) -> None:
        """Continue: the threads of a process do so at the same time, so their order is drawn."""
        if self._world.draw() < 0.5:  # the loop is first, before the mail is received
            self.paused = False
            self.tick(self.clock.now())
            self._held.sort(key=lambda held: held[0] != self._work)
        super().resume()
        if self.died_s == inf:
            self.send_beat()

    def note_stop(self) -> None:
        """Note in the flight recorder what this process, which is paused, is executing."""
        if self._box is not None:
            self._box.note_death(self._world.now_s)

    def die(self) -> None:
        super().die()
        self._take_back()
        for packet in self._waiting:
            packet.fail()
        if self._box is not None:
            self._box.note_death(self.died_s)

    @property
    def ready(self) -> bool:
        """Whether `results` can be called."""
        return not (self.core is None or self.greeting or self.broken or self.paused)

    # ---- the port of WorkerProcessBase -----------------------------------------------------------

    def wake(self) -> None:
        self._wake_at(self._world.now_s)

    def call_master(self, event: events.Event) -> None:
        self._network.call(self, MASTER, "apply", event)

    def equip(self, plan: Plan, life: int) -> Equipment:
        env, worker = self._env, self.address
        size = SimFlightRecorder.size_of(plan, worker)
        buffer = mmap(-1, size)  # mostly empty pages, which cost nothing
        env.recorders[worker] = (self.node, buffer)
        call_s = env.conditions.call_s
        self._box = SimFlightRecorder(buffer, life, self._world, self.clock, call_s)
        self.clock.slept = self._watch
        event_writer, clock = None, HistoryClock(self._world, self.clock)
        if env.sample is not None:
            event_writer = EventWriter(clock, self._entries.append, env.sample)
        equipment = (env.generator, self.clock, self._box, env.reservations, event_writer)
        return Equipment(*equipment, event_clock=clock, wake=None)

    def load_plan(self, number: int) -> Plan:
        return self._env.plan_of(number)

    def load_transfer(self, move: int, task: Task) -> TaskTransfer | None:
        return pickled_copy(self._env.transfer.get((move, task.id)), self._env.plan.record_types)

    def save_transfer(self, move: int, task: Task, transfer: TaskTransfer, keeping: bool) -> None:
        if (move, task.id) not in self._env.transfer:
            self._env.transfer[move, task.id] = pickled_copy(transfer, self._env.plan.record_types)

    def log(self, line: str) -> None:
        """Not kept."""

    def _pack(self, move: int, leaving: list[int], fresh: list[int]) -> None:
        super()._pack(move, leaving, fresh)
        self._kept = len(self._entries)  # the TaskTransfers contain their effects

    # ---- the loop ------------------------------------------------------------------------------

    def _wake_at(self, at_s: float) -> None:
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
        if self.broken or self.greeting:
            return  # the Welcome wakes it
        if not self.lease.holds(self.clock.now()):
            return  # the answer to a heartbeat wakes it
        if self._box is not None:
            self._box.new_slice()
        self._kept = len(self._entries)
        wait_s = self._guarded(self._slice)
        if self._env.check and self.core is not None:
            self.core.check_invariants()
        self._busy_until_s = inf if self._doomed else self._world.now_s + self.clock.ahead_s
        self.clock.ahead_s = 0.0
        if self.mailbox:
            self._wake_at(self._world.now_s)
        elif wait_s is not None:
            self._wake_at(self._busy_until_s + self.clock.in_world_s(wait_s))

    def _slice(self) -> float | None:
        """Read the mailbox, run steps, send packets. Returns the wait, as `Worker.step` does."""
        self.read_mail()
        if self.greeting:
            self._world.after(self.clock.ahead_s, self.do, self.say_hello)
            return None
        core, wait_s = self._core, None
        slice_s = core.plan.graph.config.internals.slice_s
        for _ in range(_STEPS_MAX):
            wait_s = core.step()
            if wait_s != 0 or self.clock.ahead_s >= slice_s or self._world.draw() > _GO_ON:
                break
        self.clock.ahead_s += self._world.about(0.1 * self._env.conditions.call_s)
        self._send()
        return wait_s

    def _guarded(self, work: Callable[[], float | None]) -> float | None:
        """Do some work; an error in it ends the loop, or the process.

        Raises errors that user code did not cause: a defect of the core ends the simulation.
        """
        modules = self.plan.graph.modules
        try:
            with nullcontext() if modules is None else modules.in_force():
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
        self.call_master(events.Broken(self.address, self.life, why))

    # ---- messages to others --------------------------------------------------------------------

    def _send(self) -> None:
        core, network, left_s = self._core, self._network, self._world.now_s + self.clock.ahead_s
        for peer, seq, data in core.outgoing():
            fate = core.fate(peer)
            sent = flipped(data, self._env.generator) if fate.corrupt else data
            hear = partial(self._answered, core, peer, seq)
            packet = SimPacket(network, self, peer, sent, hear, heard=fate.heard)
            for late_s in fate.delays_s:
                packet.leave(left_s, late_s)
            if not fate.delays_s and fate.fails:
                packet.fail()
        self._report_soon()

    def _answered(self, core: Worker, peer: int, seq: int, answer: Answer | None) -> None:
        """Handle a peer's answer to a packet; None: the call failed."""
        hear = partial(core.answered, peer, seq, answer)
        busy = self._world.now_s < self._busy_until_s or self.greeting or self.broken
        busy = busy or not self.lease.holds(self.clock.now())
        if busy or answer is not Answer.ACCEPTED:
            self.put(hear)
        else:  # this creates no work, but may release the next packet
            hear()
            self._guarded(self._send)

    def _beat_answered(self, life: int, sent_s: float, answer: bool | None) -> None:
        now = self.clock.now()
        if self.lease.ticked_s < inf and self.beat_answered(life, sent_s, answer, now):
            self._ends(self)

    def _report_soon(self) -> None:
        """Schedule statistics to the master, after a change."""
        if not self._will_report:
            self._will_report = True
            now_s = self._world.now_s
            soon_s = now_s + self._world.about(_REPORT_SOON_S)
            left_s = self.clock.in_world_s(self._stats_due_s - self.clock.now())
            due_s = now_s + self.clock.ahead_s + left_s
            self._world.at(max(soon_s, due_s), self.do, self._report)

    def _report(self) -> None:
        if self._world.now_s < self._busy_until_s:
            self._world.at(self._busy_until_s, self.do, self._report)
            return
        self._will_report = False
        if not self.greeting and not self.broken:  # else the next life reports
            self.send_stats(self.clock.now())

    # ---- helpers -------------------------------------------------------------------------------

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
            entry for entry in last if entry.at_s <= self.died_s or entry.what is What.WROTE
        ]

    def _watch(self) -> None:
        """The watchdog: end the process if a call of user code has slept for too long."""
        box, limit_s = self._box, self._core.plan.graph.config.block_max_s
        call = None if box is None else box.running()
        if box is not None and call is not None and self.clock.now() - call.since_s >= limit_s:
            found_s = box.begun_s + self.clock.in_world_s(limit_s) * self._world.between(1, 9 / 8)
            self.clock.ahead_s = min(self.clock.ahead_s, found_s - self._world.now_s)
            box.note_stack("".join(traceback.format_stack()))
            raise Killed
