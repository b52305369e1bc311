"""The states of one topology, and which command is possible in which of them.

                      ┌──deactivate──▶ INACTIVE ──┐ rebalance
    STARTING ──▶ ACTIVE ◀──activate──────┘  ▲     ▼
                   │  └──────rebalance──────┼─▶ REBALANCING ──▶ ACTIVE or INACTIVE, as before
                   │                        └──────┘
                   ├──drain, kill──▶ DRAINING ──all is done──▶ FINISHED ──kill──▶ KILLED
                   │                    └──killed, and the wait is over───────────▲
                   └──the spouts are exhausted──▶ FINISHED      a task gave up: FAILED

`kill` and a task that gives up are possible everywhere; `drain` everywhere before the end. What is
wished is in the book, so a master that comes back goes on; a wait that was running starts anew.
Storm: org.apache.storm.daemon.nimbus.Nimbus (TOPO_STATE_TRANSITIONS): there, too, an activation of
what is active is no error, a second kill begins a new wait, and a new leader re-arms the waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sunshower.errors import LifecycleError
from sunshower.runtime.book import Book
from sunshower.runtime.metrics import Counts


class State(StrEnum):
    """Where a topology stands."""

    STARTING = "starting"  # not all workers have said hello
    ACTIVE = "active"
    INACTIVE = "inactive"  # spouts emit nothing; acks, failures and timeouts go on
    REBALANCING = "rebalancing"  # as inactive, while tasks change places
    DRAINING = "draining"  # nothing fresh is emitted, replays are
    FINISHED = "finished"
    KILLED = "killed"
    FAILED = "failed"


class Command(StrEnum):
    """What somebody can ask of a topology."""

    ACTIVATE = "activate"
    DEACTIVATE = "deactivate"
    REBALANCE = "rebalance"
    DRAIN = "drain"
    KILL = "kill"


_BEFORE_THE_END = frozenset(State) - {State.KILLED, State.FAILED}
POSSIBLE: Mapping[Command, frozenset[State]] = {
    Command.ACTIVATE: frozenset({State.STARTING, State.ACTIVE, State.INACTIVE}),
    Command.DEACTIVATE: frozenset({State.STARTING, State.ACTIVE, State.INACTIVE}),
    Command.REBALANCE: frozenset({State.ACTIVE, State.INACTIVE}),
    Command.DRAIN: _BEFORE_THE_END,  # of what has just finished, too: whoever asks comes too late
    Command.KILL: frozenset(State),
}


@dataclass(frozen=True)
class KillReport:
    """What a topology had done when it was killed."""

    spouts: Mapping[str, Counts]  # component id → all lives of its tasks
    unsettled: int  # records that were emitted, and neither acked nor given up: lost with the kill
    seconds: float  # from the kill to the end


@dataclass(frozen=True)
class Facts:
    """What the master sees, as far as the state depends on it."""

    joined: bool  # every worker has said hello in the present places
    arrived: bool  # and its latest life has told how it stands
    quiet: bool  # spouts are at rest, nothing is pending, nothing on its way
    done: bool  # spouts are exhausted, nothing is pending, nothing on its way


class Lifecycle:
    """The wishes of one topology, in its book, and the waits that follow from them.

    Every time is in seconds on a clock of the caller's that only has to be steady.
    """

    def __init__(self, topology: str, book: Book, now: float) -> None:
        self._topology = topology
        self._book = book
        self._since_s = now  # of the kill or the rebalance that is under way

    def state(self, facts: Facts) -> State:
        """Where the topology stands. A failure hides everything but the kill."""
        book = self._book
        if book.killed:
            return State.KILLED
        if book.error is not None:
            return State.FAILED
        if book.draining:
            return State.FINISHED if facts.done and not book.killing else State.DRAINING
        if book.next_places or (book.moves and not facts.joined):
            return State.REBALANCING
        if not facts.joined:
            return State.STARTING
        if facts.done:
            return State.FINISHED
        return State.ACTIVE if book.active else State.INACTIVE

    def allow(self, command: Command, state: State) -> None:
        """Raises LifecycleError, which says what is possible, for what is not."""
        if state in POSSIBLE[command]:
            return
        others = [str(other) for other, states in POSSIBLE.items() if state in states]
        reason = f" ({self._book.error.splitlines()[0]})" if self._book.error else ""
        raise LifecycleError(
            f"topology {self._topology!r} is {state}{reason}, and {command} is not possible then; "
            f"possible are: {', '.join(others)}"
        )

    def activate(self, active: bool) -> None:
        """Let the spouts emit, or let them rest."""
        self._book.active = active

    def drain(self) -> None:
        """Emit nothing fresh from now on. A rebalance that has not moved anything is given up."""
        self._book.draining = True
        if not self._book.packing:
            self._book.next_places = None

    def kill(self, wait_s: float, now: float) -> None:
        """Drain for `wait_s` at most, then end. A second kill begins a new wait."""
        self.drain()
        self._book.killing = True
        self._book.wait_s, self._since_s = wait_s, now

    def rebalance(self, places: list[int], wait_s: float, now: float) -> None:
        """Come to rest within `wait_s`, then put task i of the plan on worker `places[i]`."""
        self._book.next_places = places
        self._book.wait_s, self._since_s = wait_s, now

    def look(self, facts: Facts, now: float) -> None:
        """Go on where a wait is over, or has become needless."""
        book = self._book
        waited = now >= self._since_s + book.wait_s
        if book.killing and (waited or facts.done or book.error is not None):
            book.killed = True
        elif book.next_places and facts.arrived and (waited or facts.quiet):
            book.packing = True

    def move(self) -> None:
        """Everybody has packed: the new places count from now on, for new lives of all."""
        book = self._book
        assert book.next_places
        book.places, book.next_places, book.packing = book.next_places, None, False
        book.floor = max(book.lives.values())
        book.moves += 1

    def waited_s(self, now: float) -> float:
        """How long the kill or the rebalance has been under way."""
        return now - self._since_s
