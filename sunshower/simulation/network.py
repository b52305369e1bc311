"""Virtual time, and calls between the processes of one run, which are lost when a process dies.

Calls from one process to another arrive in the order in which they left, unless one is delayed;
calls of different senders may overtake each other. A call to a process that does not exist fails,
and its sender learns that some time later; for a call without an answer it never does.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappop, heappush
from math import inf, log
from mmap import mmap
from random import Random
from typing import TYPE_CHECKING, Any

from sunshower.arguments import COUNT, MOMENT, SECONDS, Values, check_all
from sunshower.clock import VIRTUAL_DATE
from sunshower.errors import LifecycleError, user_errors
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.savepoint import Savepoint
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.events.event_log import Entry
from sunshower.runtime.plan import Plan
from sunshower.runtime.transport.packets import Answer
from sunshower.runtime.value_copies import packed
from sunshower.texts import describe_error

if TYPE_CHECKING:
    import numpy as np

_OFFSET_MAX_S = 10_000.0  # of a clock
_LATENCIES_S = (0.000_1, 0.01)  # from one rack to one continent
_CALLS_S = (0.000_01, 0.003)
_NODES_MAX = 3
_DRIFTS = (0.000_1, 0.03)
_DRIFT = Values(float, least=0, most=0.99)

# ---- virtual time --------------------------------------------------------------------------------


class World:
    """A discrete-event loop: time jumps from one event to the next.

    The seed determines the order of events at the same time.
    """

    def __init__(self, seed: int, date: datetime = VIRTUAL_DATE) -> None:
        """`date`: that of all wall clocks at second 0. Raises ConfigError for one without a time
        zone."""
        self.seed = seed
        MOMENT.check("date", date)
        self.now_s, self.date_s = 0.0, date.timestamp()
        self._random = Random(seed)
        self.draw = self._random.random  # in [0, 1)
        self._events: list[tuple[float, float, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, time_s: float, event: Callable[..., None], *arguments: Any) -> None:
        """Schedule `event(*arguments)` at `time_s`, which must not be in the past."""
        heappush(self._events, (time_s, self.draw(), event, arguments))

    def after(self, seconds: float, event: Callable[..., None], *arguments: Any) -> None:
        """Schedule `event(*arguments)` in `seconds` from now."""
        heappush(self._events, (self.now_s + seconds, self.draw(), event, arguments))

    @property
    def next_s(self) -> float:
        """The time of the next event; ∞ if there is none."""
        return self._events[0][0] if self._events else inf

    def step(self) -> None:
        """Run the next event; there must be one."""
        self.now_s, _, event, arguments = heappop(self._events)
        event(*arguments)

    def run_until(self, time_s: float) -> None:
        """Run all events that are due by `time_s`."""
        events = self._events
        while events and events[0][0] <= time_s:
            self.now_s, _, event, arguments = heappop(events)
            event(*arguments)
        self.now_s = max(self.now_s, time_s)

    def about(self, mean: float) -> float:
        """A random duration, exponentially distributed around `mean`."""
        return -mean * log(1.0 - self.draw())

    def between(self, least: float, most: float) -> float:
        """A random value between the two."""
        return least + (most - least) * self.draw()


class ProcessClock:
    """The clock of one process, with a random offset and a random drift.

    During a slice it is ahead of the world by `ahead_s`: a slice is computed at one moment of the
    world's time, and its cost passes afterwards. `slept` is called when user code has slept, for
    the watchdog.
    """

    def __init__(self, world: World, drift: float) -> None:
        """`drift`: how much faster or slower than the world it may run: 0.01 is one percent."""
        self.ahead_s = 0.0
        self.slept: Callable[[], None] = lambda: None  # there is no watchdog yet
        self._world = world
        self._offset_s = world.between(0.0, _OFFSET_MAX_S)
        self._rate = 1.0 + world.between(-drift, drift)

    def now(self) -> float:
        return self._offset_s + (self._world.now_s + self.ahead_s) * self._rate

    def sleep(self, seconds: float) -> None:
        self.ahead_s += seconds / self._rate
        self.slept()

    def wall(self) -> float:
        return self._world.date_s + self._world.now_s

    def in_world_s(self, seconds: float) -> float:
        """`seconds` of this clock, converted to the world's time."""
        return seconds / self._rate


class HistoryClock:
    """The world's time plus the cost of the current slice: for the event log."""

    def __init__(self, world: World, clock: ProcessClock) -> None:
        self._world = world
        self._clock = clock

    def now(self) -> float:
        return self._world.now_s + self._clock.ahead_s

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def wall(self) -> float:
        return self._clock.wall()


@dataclass(frozen=True, kw_only=True)
class SimConditions:
    """The seed draws every value that is not set. Times are averages.

    Raises ConfigError for invalid values.
    """

    nodes: int = 1
    latency_s: float  # of a message between two processes
    call_s: float  # of a call of user code, besides its own sleeps
    drift: float = 0.01  # largest relative error of a clock's rate
    down_s: tuple[float, float] = (0.05, 0.6)  # from a death to the start of the next process
    notice_s: tuple[float, float] = (0.0, 0.7)  # until a caller learns that its call has failed

    def __post_init__(self) -> None:
        rules = {"nodes": COUNT, "drift": _DRIFT, "latency_s": SECONDS, "call_s": SECONDS}
        check_all(self, rules)


def drawn(
    world: World,
    *,
    nodes: int | None,
    drift: float | None,
    latency_s: float | None,
    call_s: float | None,
) -> SimConditions:
    """SimConditions for one seed, which draws each value that is None."""
    latency_s = _any_magnitude(world, *_LATENCIES_S) if latency_s is None else latency_s
    call_s = _any_magnitude(world, *_CALLS_S) if call_s is None else call_s
    nodes = 1 + int(world.draw() * _NODES_MAX) if nodes is None else nodes
    drift = _any_magnitude(world, *_DRIFTS) if drift is None else drift
    return SimConditions(nodes=nodes, drift=drift, latency_s=latency_s, call_s=call_s)


def _any_magnitude(world: World, least: float, most: float) -> float:
    return float(least * (most / least) ** world.draw())


Failed = Callable[[], None] | None  # called if a call fails
_APART_S = 1e-9  # shortest time between two calls of one sender


# ---- calls ---------------------------------------------------------------------------------------


class SimProcess:
    """One simulated process, from start to death. Its public methods can be called remotely."""

    def __init__(self, world: World, conditions: SimConditions, address: int, node: str) -> None:
        self.address = address
        self.node = node
        self.pid = 0
        self.clock = ProcessClock(world, conditions.drift)
        self.died_s = inf  # on the world's clock
        self.paused = False
        self.peer_links: dict[int, float] = {}  # address → when the last call to it arrives
        self._world = world
        self._held: list[tuple[Callable[..., Any], tuple[Any, ...], Failed]] = []
        # address → when the last call left that is not lost
        self._lost_after_s: dict[int, float] = {}

    @property
    def ready(self) -> bool:
        """Whether it can answer a call."""
        return not self.paused

    def do(self, what: Callable[..., Any], *arguments: Any, failed: Failed = None) -> None:
        """Run `what(*arguments)` in this process: at once, or when it is resumed. If it dies while
        that waits, `failed` is called."""
        if self.paused:
            self._held.append((what, arguments, failed))
        elif self.died_s == inf:
            what(*arguments)

    def pause(self) -> None:
        """SIGSTOP: nothing runs here until `resume`; time continues."""
        self.paused = True

    def resume(self) -> None:
        """SIGCONT. A process that was killed meanwhile runs nothing."""
        self.paused = False
        held, self._held = self._held, []
        for what, arguments, failed in held:
            self.do(what, *arguments, failed=failed)

    def die(self) -> None:
        """SIGKILL: calls that it has not processed fail."""
        self.died_s = self._world.now_s
        self.paused = False
        held, self._held = self._held, []
        for _, _, failed in held:
            if failed is not None:
                failed()

    def loses_call(self, address: int, left_s: float, latency_s: float) -> bool:
        """Whether its death loses a call to `address` that left at `left_s`: all calls that had not
        left are lost, and perhaps the last ones that had, as network cards buffer."""
        if self.died_s == inf:
            return False
        if address not in self._lost_after_s:
            lost_s = self._world.about(2 * latency_s) if self._world.draw() < 0.5 else 0.0
            self._lost_after_s[address] = self.died_s - lost_s
        return left_s > self._lost_after_s[address]


class Network:
    """The network between the processes of one run."""

    def __init__(self, world: World, conditions: SimConditions) -> None:
        self.there: dict[int, SimProcess] = {}  # address → the living process
        self._world = world
        self._conditions = conditions
        self._awaited: dict[int, list[Callable[[], None]]] = {}

    def enter(self, process: SimProcess) -> None:
        """Add a process, which can be called from now on."""
        self.there[process.address] = process
        for callback in self._awaited.pop(process.address, []):
            callback()

    def when_there(self, address: int, callback: Callable[[], None]) -> None:
        """Run `callback` as soon as there is a process at `address`."""
        if address in self.there:
            callback()
        else:
            self._awaited.setdefault(address, []).append(callback)

    def call(
        self,
        sender: SimProcess,
        address: int,
        what: str,
        *arguments: Any,
        left_s: float | None = None,
        late_s: float = 0.0,
        failed: Failed = None,
    ) -> None:
        """Call a method of the process that is at `address` on arrival.

        `left_s`: when the call leaves, if not now; `late_s`: an extra delay, in which others may
        overtake it. `failed` is called if no process is there, or if it dies before that.
        """
        world = self._world
        left_s = world.now_s if left_s is None else left_s
        arrives_s = left_s + self.latency_s()
        if late_s:
            arrives_s += late_s
        else:
            arrives_s = max(arrives_s, sender.peer_links.get(address, 0.0) + _APART_S)
            sender.peer_links[address] = arrives_s
        world.at(arrives_s, self._arrive, sender, address, left_s, what, arguments, failed)

    def answer(
        self, sender: SimProcess, caller: SimProcess, hear: Callable[[Any], None], answer: Any
    ) -> None:
        """Run `hear(answer)` in the process of the caller, or `hear(None)` if the sender dies
        before the answer has certainly left."""
        self._world.after(self.latency_s(), self._answered, sender, caller, hear, answer)

    def unanswered(self, caller: SimProcess, hear: Callable[[Any], None]) -> None:
        """Run `hear(None)` in the process of the caller, which learns only after a while that there
        will be no answer."""
        notice_s = self._world.between(*self._conditions.notice_s)
        self._world.after(notice_s, caller.do, hear, None)

    def latency_s(self) -> float:
        mean_s = self._conditions.latency_s
        return 0.2 * mean_s + self._world.about(0.8 * mean_s)

    def _answered(
        self, sender: SimProcess, caller: SimProcess, hear: Callable[[Any], None], answer: Any
    ) -> None:
        if sender.died_s < inf and self._world.draw() < 0.5:
            self.unanswered(caller, hear)
        else:
            caller.do(hear, answer)

    def _arrive(
        self,
        sender: SimProcess,
        address: int,
        left_s: float,
        what: str,
        arguments: tuple[Any, ...],
        failed: Failed,
    ) -> None:
        if sender.loses_call(address, left_s, self._conditions.latency_s):
            return
        receiver = self.there.get(address)
        if receiver is not None:
            receiver.do(getattr(receiver, what), *arguments, failed=failed)
        elif failed is not None:
            failed()


@dataclass(slots=True)
class SimPacket:
    """A packet between two workers. Its sender learns the result once, however many copies the
    network makes."""

    network: Network
    sender: SimProcess
    peer: int
    data: bytes
    hear: Callable[[Answer | None], None]  # called with the answer, or with None if the call failed
    heard: bool  # whether the answer reaches the sender
    is_done: bool = False

    def leave(self, left_s: float, late_s: float) -> None:
        """Send the packet, or one copy of it."""
        self.network.call(
            self.sender,
            self.peer,
            "deliver",
            self,
            left_s=left_s,
            late_s=late_s,
            failed=self.fail,
        )

    def answer(self, receiver: SimProcess, answer: Answer) -> None:
        """Send the receiver's answer; answers to further copies are ignored."""
        if not self.is_done:
            self.is_done = True
            heard = answer if self.heard else None
            self.network.answer(receiver, self.sender, self.hear, heard)

    def fail(self) -> None:
        """Report to the sender, after a while, that the packet did not arrive."""
        if not self.is_done:
            self.is_done = True
            self.network.unanswered(self.sender, self.hear)


# ---- environment ---------------------------------------------------------------------------------

STATE = "master"  # the key of the MasterState in the store


class SimReservationStore(dict[int, int]):
    """The emit reservations of all spout tasks; they survive the end of any machine."""

    def read(self, task: int) -> int:
        return self.get(task, 0)

    def write(self, task: int, number: int) -> None:
        self[task] = number


@dataclass(frozen=True)
class SimEnvironment:
    """The world, network, stores and settings of one run."""

    world: World
    conditions: SimConditions
    network: Network
    generator: np.random.Generator  # shared by all workers: one thread, one seed
    plan: Plan  # as submitted; for the others see `plans`
    sample: int | None  # None: no event log
    check: bool  # check the invariants of a worker after each of its slices
    store: dict[str, bytes] = field(default_factory=dict)  # the MasterState, under STATE
    transfer: dict[tuple[int, int], TaskTransfer] = field(default_factory=dict)  # by move, task
    reservations: SimReservationStore = field(default_factory=SimReservationStore)
    plans: dict[int, Plan] = field(default_factory=dict)  # by number: of upgrades
    recorders: dict[int, tuple[str, mmap]] = field(default_factory=dict)  # worker → node, recorder
    entries: list[list[Entry]] = field(default_factory=list)  # the event log, by process

    def resume(self, savepoint: Savepoint, state: MasterState) -> None:
        """Store what the processes of a run find that continues from a savepoint."""
        for task, data in savepoint.transfers.items():
            self.transfer[state.moves, task] = pickle.loads(data)  # noqa: S301 (of this program)
        self.store[STATE] = state.to_bytes()

    def packed(self, move: int, task: int) -> bytes | None:
        """The pickled TaskTransfer of a task. Raises LifecycleError if it cannot be pickled."""
        if (transfer := self.transfer.get((move, task))) is None:
            return None
        try:
            return packed(transfer, self.plan.record_types)
        except user_errors() as error:
            names = {candidate.id: candidate.component for candidate in self.plan.tasks}
            component = names.get(task, task)
            raise LifecycleError(
                f"{component!r} cannot be kept: what its snapshot() returned, or a message id, "
                f"cannot be pickled ({describe_error(error)}). Return plain values"
            ) from error

    def plan_of(self, number: int) -> Plan:
        return self.plans[number] if number else self.plan
