"""How calls travel between the simulated processes of one run, and what a death takes along.

Calls from one process to another arrive in the order in which they left, unless one is held up;
calls of different senders overtake each other freely. A call to somebody who is not there fails,
and its sender learns of that some time later; of a call that wants no answer nobody ever hears.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from sunshower.simulation.clocks import ProcessClock
from sunshower.simulation.conditions import Conditions
from sunshower.simulation.world import World

Failed = Callable[[], None] | None  # what to do when a call comes to nothing
MASTER = -1  # its address; a worker's is its id
_APART_S = 1e-9  # two calls of one sender, at least


class Process:
    """One simulated process, from its start to its death. Its public methods can be called."""

    def __init__(self, world: World, conditions: Conditions, address: int, node: str) -> None:
        self.address = address
        self.node = node
        self.pid = 0
        self.clock = ProcessClock(world, conditions.drift)
        self.died_s = inf  # on the world's clock
        self.paused = False
        self.lanes: dict[int, float] = {}  # address → when the last call to it arrives
        self._world = world
        self._held: list[tuple[Callable[..., Any], tuple[Any, ...], Failed]] = []
        self._last_words: dict[int, float] = {}  # address → what left later than this died, too

    @property
    def ready(self) -> bool:
        """Whether it can be asked something."""
        return not self.paused

    def do(self, what: Callable[..., Any], *given: Any, failed: Failed = None) -> None:
        """Something happens in this process: at once, when it goes on, or never any more; then
        `failed` is called if it was waiting for that."""
        if self.paused:
            self._held.append((what, given, failed))
        elif self.died_s == inf:
            what(*given)

    def pause(self) -> None:
        """SIGSTOP: nothing happens here until `resume`; time goes on."""
        self.paused = True

    def resume(self) -> None:
        """SIGCONT. One that was killed meanwhile is left alone."""
        self.paused = False
        held, self._held = self._held, []
        for what, given, failed in held:
            self.do(what, *given, failed=failed)

    def die(self) -> None:
        """SIGKILL: calls that it has not looked at have failed."""
        self.died_s = self._world.now_s
        self.paused = False
        held, self._held = self._held, []
        for _, _, failed in held:
            if failed is not None:
                failed()

    def silenced(self, address: int, left_s: float, latency_s: float) -> bool:
        """Whether what it sent to `address` at `left_s` has died with it: what had not left, and
        perhaps the last of what had, as nobody knows when a network card is done."""
        if self.died_s == inf:
            return False
        if address not in self._last_words:
            lost_s = self._world.about(2 * latency_s) if self._world.draw() < 0.5 else 0.0
            self._last_words[address] = self.died_s - lost_s
        return left_s > self._last_words[address]


class _Call:
    """A method of a process, called from afar. `failed`: what to do if nobody is there."""

    __slots__ = ("address", "failed", "given", "left_s", "sender", "what")

    def __init__(
        self,
        sender: Process,
        address: int,
        left_s: float,
        what: str,
        given: tuple[Any, ...],
        failed: Failed,
    ) -> None:
        self.sender = sender
        self.address = address
        self.left_s = left_s
        self.what = what
        self.given = given
        self.failed = failed


class Network:
    """Between the processes of one run."""

    def __init__(self, world: World, conditions: Conditions) -> None:
        self.there: dict[int, Process] = {}  # address → the process that is there now
        self._world = world
        self._conditions = conditions
        self._awaited: dict[int, list[Callable[[], None]]] = {}

    def enter(self, process: Process) -> None:
        """A process is there now, and can be called."""
        self.there[process.address] = process
        for callback in self._awaited.pop(process.address, []):
            callback()

    def when_there(self, address: int, callback: Callable[[], None]) -> None:
        """Do something as soon as somebody is there."""
        if address in self.there:
            callback()
        else:
            self._awaited.setdefault(address, []).append(callback)

    def call(
        self,
        sender: Process,
        address: int,
        what: str,
        *given: Any,
        left_s: float | None = None,
        late_s: float = 0.0,
        failed: Failed = None,
    ) -> None:
        """Have a method of whoever is at `address` then called.

        `left_s`: when it leaves, if not now; `late_s`: held up for so long, and so overtaken by
        others. `failed` is called if nobody is there, or he dies before he has looked at it.
        """
        world = self._world
        left_s = world.now_s if left_s is None else left_s
        arrives_s = left_s + self.latency_s()
        if late_s:
            arrives_s += late_s
        else:
            arrives_s = max(arrives_s, sender.lanes.get(address, 0.0) + _APART_S)
            sender.lanes[address] = arrives_s
        world.at(arrives_s, self._arrive, _Call(sender, address, left_s, what, given, failed))

    def answer(
        self, sender: Process, caller: Process, hear: Callable[[Any], None], answer: Any
    ) -> None:
        """Have `hear(answer)` happen in the process of the caller, or `hear(None)` if the sender
        dies before it is certain that the answer has left."""
        self._world.after(self.latency_s(), self._answered, sender, caller, hear, answer)

    def unanswered(self, caller: Process, hear: Callable[[Any], None]) -> None:
        """Have `hear(None)` happen there: the caller learns only after a while that nobody will
        answer."""
        deaf_s = self._world.between(*self._conditions.deaf_s)
        self._world.after(deaf_s, caller.do, hear, None)

    def latency_s(self) -> float:
        """How long one message takes."""
        mean_s = self._conditions.latency_s
        return 0.2 * mean_s + self._world.about(0.8 * mean_s)

    def _answered(
        self, sender: Process, caller: Process, hear: Callable[[Any], None], answer: Any
    ) -> None:
        if sender.died_s < inf and self._world.draw() < 0.5:
            self.unanswered(caller, hear)
        else:
            caller.do(hear, answer)

    def _arrive(self, call: _Call) -> None:
        if call.sender.silenced(call.address, call.left_s, self._conditions.latency_s):
            return
        receiver = self.there.get(call.address)
        if receiver is not None:
            receiver.do(getattr(receiver, call.what), *call.given, failed=call.failed)
        elif call.failed is not None:
            call.failed()
