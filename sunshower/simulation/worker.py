"""The simulated process around a worker: what `actors/worker.py` is on Ray.

Its main thread takes calls at once, unless it is paused; its loop works in slices. A slice happens
at one moment of the world; what it costs passes afterwards, and then its packets leave.
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
from sunshower.runtime.blackbox import read
from sunshower.runtime.havoc import flipped
from sunshower.runtime.history import Entry, Scribe, What
from sunshower.runtime.lanes import Inlet
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.master import Welcome, Wish
from sunshower.runtime.obituary import Obituary
from sunshower.runtime.packets import Answer
from sunshower.runtime.placement import placed
from sunshower.runtime.usercode import TaskError
from sunshower.runtime.worker import Worker
from sunshower.simulation.box import SimBox
from sunshower.simulation.clocks import HistoryClock
from sunshower.simulation.network import MASTER, Process
from sunshower.simulation.packet import Packet
from sunshower.simulation.site import Site

_TELL_S = 0.25  # how often the master hears, while anything changes
_TELL_SOON_S = 0.02  # when it first hears of something
_STEPS_MAX = 16  # of one slice
_GO_ON = 0.8  # the chance that a slice goes on after a step, while there is more to do


class Killed(BaseException):
    """SIGKILL in the middle of user code: whoever raises it ends the process that runs it."""


class SimWorker(Process):
    """One process with some tasks of a topology."""

    def __init__(self, site: Site, worker: int, node: str, ends: Callable[[Process], None]) -> None:
        """`ends`: what to call when user code, or the watchdog, ends the process."""
        super().__init__(site.world, site.conditions, worker, node)
        self.core: Worker | None = None  # until it is welcomed for the first time
        self.broken = False  # an error has ended the loop
        self._doomed = False  # its last slice has begun
        self._site = site
        self._network = site.network
        self._ends = ends
        self._inlet: Inlet | None = None
        self._greeting = False  # hello is said, and the new life has not begun
        self._waiting: list[Packet] = []  # until it begins
        self._mailbox: deque[Callable[[], Any]] = deque()
        self._busy_until_s = 0.0  # when the slice that is under way is over
        self._wakes_s = inf  # when the next one begins
        self._luggage: dict[int, Luggage] = {}  # of tasks that stay in this process
        self._move = 0
        self._told: tuple[object, ...] | None = None  # the pulse then
        self._tell_at_s = 0.0  # on the world's clock
        self._will_tell = False
        _, box = site.boxes.get(worker, ("", b""))  # from another machine, too, if that is there
        self._obituary = read(box, worker)
        self._box: SimBox | None = None
        self._entries: list[Entry] = []  # its part of the history
        self._kept = 0  # how many of them no death can take back
        site.entries.append(self._entries)

    # ---- called from afar ------------------------------------------------------------------

    def deliver(self, packet: Packet) -> None:
        """A packet of a peer. The answer says whether it will be processed."""
        if self._greeting:
            self._waiting.append(packet)  # the sender knows this life before it has begun
            return
        answer = Answer.STALE
        if self._inlet is not None and not self.broken:
            answer = self._inlet.answer(packet.data)
            if answer is Answer.ACCEPTED:
                self._put(partial(self._receive, self._inlet, packet.data))
        packet.answer(self, answer)

    def peers(self, lives: dict[int, int], obituaries: list[Obituary]) -> None:
        """The master's news of who is in which life, and of the ends of former ones."""
        self._put(lambda: self._core.peers(lives, obituaries))

    def report(self) -> None:
        """A new master asks how this worker stands."""
        self._put(self._forget_told)

    def wish(self, wish: Wish) -> None:
        """What is wished from now on."""
        self._put(lambda: self._core.wish(wish))

    def pack(self, move: int, leaving: list[int]) -> None:
        """End this life for rebalance number `move`; luggage of tasks that leave is stored."""
        self._put(partial(self._pack, move, leaving))

    def again(self, move: int) -> None:
        """Rebalance number `move` has got so far that new lives begin."""
        self._put(partial(self._begin_again, move))

    # ---- from the first breath to the last ---------------------------------------------------

    def say_hello(self) -> None:
        """Tell the master that a life begins here; `welcomed` is called with its answer."""
        self._greeting = True
        again = partial(self.do, self.say_hello)
        failed = partial(self._network.when_there, MASTER, again)
        hello = (self, self.welcomed, self._obituary)
        self._network.call(self, MASTER, "hello", *hello, failed=failed)

    def welcomed(self, welcome: Welcome | None) -> None:
        """What the master has answered; None: it has died over it, and its successor is asked."""
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
        """Close all tasks. Returns what they had to say against their end."""
        return [] if self.core is None else self.core.close()

    @property
    def ready(self) -> bool:
        """Whether it can be asked for results."""
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
        """A new core: the process has started, or tasks have changed places."""
        site, worker = self._site, self.address
        plan = placed(site.plan, welcome.places)
        stay, luggage = self._luggage, dict[int, Luggage]()
        for task in plan.tasks_on(worker):
            if task.id in stay:
                luggage[task.id] = stay[task.id]
            elif (packed := site.luggage.get((welcome.move, task.id))) is not None:
                luggage[task.id] = deepcopy(packed)
        self._move, self._luggage = welcome.move, {}
        self._inlet = Inlet(worker, welcome.life)
        buffer = mmap(-1, SimBox.size_of(plan, worker))  # mostly empty pages, which cost nothing
        site.boxes[worker] = (self.node, buffer)
        call_s = site.conditions.call_s
        self._box = SimBox(buffer, welcome.life, self._world, self.clock, call_s)
        self.clock.slept = self._watch
        self.core = Worker(
            plan,
            worker,
            welcome.life,
            site.generator,
            self.clock,
            self._inlet,
            self._box,
            delay_s=welcome.delay_s,
            quarantined=welcome.quarantined,
            luggage=luggage,
            scribe=self._scribe(),
            marks=site.marks,
        )
        self.core.welcome(welcome, self._obituary)
        self._forget_told()

    def _scribe(self) -> Scribe | None:
        if self._site.sample is None:
            return None
        clock = HistoryClock(self._world, self.clock)
        return Scribe(clock, self._entries.append, self._site.sample)

    def _put(self, fact: Callable[[], Any]) -> None:
        self._mailbox.append(fact)
        self._wake(self._world.now_s)

    def _wake(self, at_s: float) -> None:
        """Begin a slice at `at_s`, or as soon as the one that is under way is over."""
        at_s = max(at_s, self._busy_until_s)
        if at_s < self._wakes_s:
            self._wakes_s = at_s
            self._world.at(at_s, self.do, self._work, at_s)

    def _work(self, due_s: float) -> None:
        """One slice. It happens now; whatever it costs passes until it is over."""
        if due_s != self._wakes_s:
            return  # it was woken before that
        self._wakes_s = inf
        if self.broken or self._greeting:
            return  # it is woken when it has been welcomed
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
        """Mail, some steps, packets. Returns when to go on, as `Worker.step`."""
        while self._mailbox:
            self._mailbox.popleft()()
            if self._greeting:
                return None
        core, wait_s = self._core, None
        for _ in range(_STEPS_MAX):
            wait_s = core.step()
            if wait_s != 0 or self._world.draw() > _GO_ON:
                break
        self.clock.ahead_s += self._world.about(0.1 * self._site.conditions.call_s)
        self._send()
        return wait_s

    def _guarded(self, work: Callable[[], float | None]) -> float | None:
        """Do some work; whatever goes wrong in it ends the loop, or the process.

        Raises what is no fault of the user: a defect of the core ends the simulation, at its place.
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

    # ---- what it tells others ------------------------------------------------------------------

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
        """What a peer has said to a packet; None when the call failed."""
        hear = partial(core.answered, peer, seq, answer)
        busy = self._world.now_s < self._busy_until_s or self._greeting or self.broken
        if busy or answer is not Answer.ACCEPTED:
            self._put(hear)
        else:  # nothing to work on follows from it, but perhaps the next packet
            hear()
            self._guarded(self._send)

    def _tell_soon(self) -> None:
        """Something has happened here: the master is to hear of it, now and then."""
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
            return  # the next life tells anew
        self._core.notices()  # for a log that nobody keeps
        pulse = self._core.pulse()
        if pulse != self._told:
            self._told = pulse
            self._tell_at_s = self._world.now_s + self.clock.in_world_s(_TELL_S)
            self._network.call(self, MASTER, "hear", self._core.stats())

    def _forget_told(self) -> None:
        self._told, self._tell_at_s = None, 0.0

    # ---- how -----------------------------------------------------------------------------------

    def _receive(self, inlet: Inlet, data: bytes) -> None:
        if inlet is self._core.inlet:  # and not that of a life that is over
            self._core.receive(data)

    def _pack(self, move: int, leaving: list[int]) -> None:
        if self._move >= move:
            return  # that was long ago
        packed = self._core.pack(leaving)
        self._kept = len(self._entries)  # its luggage says so
        for task, luggage in packed.items():
            if task in leaving and (move, task) not in self._site.luggage:
                self._site.luggage[move, task] = self._copy(task, luggage)
        self._network.call(self, MASTER, "packed", self._core.stats())

    def _take_back(self) -> None:
        """What its last slice would have done after its death has not happened.

        Its user code was called all the same, and what that did outside stays: what it wrote, and
        everything here where a source was told what was done, and may have committed it.
        """
        plan = None if self.core is None else self.core.plan
        mine = [] if plan is None else [s for s in plan.spouts if s.worker == self.address]
        if plan is None or any(not plan.component(s).level.counts_records for s in mine):
            return
        last = self._entries[self._kept :]
        self._entries[self._kept :] = [
            one for one in last if one.at_s <= self.died_s or one.what is What.WROTE
        ]

    def _copy(self, task: int, luggage: Luggage) -> Luggage:
        try:
            return deepcopy(luggage)
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
        self._luggage, self._obituary = self._core.pack(()), None
        self._greeting = True
        self._world.after(self.clock.ahead_s, self.do, self.say_hello)

    def _watch(self) -> None:
        """The watchdog: a call of user code that has let too much time pass ends the process."""
        box, limit_s = self._box, self._core.plan.graph.config.block_max_s
        call = None if box is None else box.running()
        if box is not None and call is not None and self.clock.now() - call.since_s >= limit_s:
            found_s = box.begun_s + self.clock.in_world_s(limit_s) * self._world.between(1, 9 / 8)
            self.clock.ahead_s = min(self.clock.ahead_s, found_s - self._world.now_s)
            box.testify("".join(traceback.format_stack()))
            raise Killed
