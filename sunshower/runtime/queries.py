"""Calls of clients to a running topology: queries of keyed states, and requests with answers.

A query goes to the task that the records with this key go to. It is answered between two slices of
work, from what the last batch has committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias

from sunshower.arguments import SECONDS
from sunshower.clock import Clock
from sunshower.errors import (
    BadEmit,
    ClusterError,
    RequestFailed,
    RequestTimeout,
    UnknownComponent,
    Unserialisable,
)
from sunshower.records import key_of
from sunshower.runtime.plan import Plan, Task
from sunshower.runtime.tasks.bolts.keyed_bolt import KeyedBolt
from sunshower.runtime.transport.routing import stable_hash
from sunshower.topologies.graph import Component, Level
from sunshower.topologies.groupings import All, Fields
from sunshower.topologies.operators.aggregating import GLOBAL
from sunshower.topologies.operators.compiled_stage import OperatorBolt
from sunshower.topologies.operators.port import Keyed
from sunshower.topologies.operators.state_slot import held_states
from sunshower.topologies.requests import Reply, Request, RequestProgress, fields_of
from sunshower.topologies.retry import DeadLetter


@dataclass(frozen=True)
class Query:
    """A question to one task: for the value of a key, or for up to `limit` keys and values."""

    component: str
    task: int
    keys: tuple[Any, ...] | None = None
    limit: int = 0


Ask: TypeAlias = Callable[[int, Query], list[tuple[Any, Any]]]  # of (worker, the question)


def value(plan: Plan, component: str, key: Any, ask: Ask) -> Any:
    """The value of a key; None if there is none."""
    tasks = _asked(plan, component)
    try:
        task = tasks[stable_hash(key_of(key)) % len(tasks)]
    except (TypeError, BadEmit) as error:
        raise ClusterError(f"{key!r:.200} cannot be a key of {component!r}: {error}") from error
    answers = ask(task.worker, Query(component, task.id, (key,)))
    return answers[0][1]


def entries(plan: Plan, component: str, limit: int, ask: Ask) -> list[tuple[Any, Any]]:
    """Up to `limit` keys and their values."""
    collected: list[tuple[Any, Any]] = []
    for task in _asked(plan, component):
        if len(collected) < limit:
            collected += ask(task.worker, Query(component, task.id, limit=limit - len(collected)))
    return collected


def answer(query: Query, plan: Plan, objects: Mapping[int, Any]) -> list[tuple[Any, Any]]:
    """What a worker answers; `objects`: the component's objects there, by task."""
    declared = plan.graph.components.get(query.component)
    if declared is not None and (states := _states_of_batches(declared)):
        raise UnknownComponent(
            f"topology {plan.graph.id!r}: {query.component!r} has the state of exactly-once "
            f"batches {' and '.join(map(repr, states))}, which is not read in its task, but in its "
            f"store: with `sunshower state get FILE {states[0]} KEY`, or by SQL in a database"
        )
    if declared is None or not _has_keys(declared):
        names = [id for id, component in plan.graph.components.items() if _has_keys(component)]
        what = "is not a component" if declared is None else "has no keyed state"
        raise UnknownComponent(
            f"topology {plan.graph.id!r}: {query.component!r} {what}; those with a keyed state "
            f"are: {', '.join(names) or 'none'}"
        )
    if (bolt := _keyed(objects.get(query.task))) is None:
        raise ClusterError(
            f"the task of {query.component!r} that has this state does not run at the moment: it "
            f"starts, or moves. `sunshower status {plan.graph.id}` shows it; ask again"
        )
    width = len(bolt.by)
    if query.keys is None:
        if _is_broadcast(declared) and query.task != plan.tasks_of(query.component)[0].id:
            return []  # the first task has them all
        items = zip(range(query.limit), bolt.stored_items(), strict=False)
        return [(() if width == 0 else key, state_value) for _, (key, state_value) in items]
    for key in query.keys:
        wrong = type(key) is tuple and len(key) == 1  # the tuple of a key, not the key
        if wrong if width == 1 else not isinstance(key, tuple | list) or len(key) != width:
            raise ClusterError(
                f"the key of {query.component!r} has {width} value{'s' * (width != 1)} "
                f"({', '.join(bolt.by) or 'all records are one group'}), and it is not {key!r:.200}"
            )
    keys = [key_of(key) if width else GLOBAL for key in query.keys]
    try:
        return list(zip(query.keys, bolt.stored(keys), strict=True))
    except Unserialisable as error:
        raise ClusterError(f"no such key can be in {query.component!r}: {error}") from error


def _asked(plan: Plan, component: str) -> list[Task]:
    """The tasks of a component; if there is none, one whose worker says so."""
    return plan.tasks_of(component) or [plan.tasks[0]]


def _is_broadcast(component: Component) -> bool:
    """Whether each task has the states of all keys."""
    groupings = [read.grouping for read in component.inputs]
    has_all = any(isinstance(grouping, All) for grouping in groupings)
    return has_all and not any(isinstance(grouping, Fields) for grouping in groupings)


def _states_of_batches(component: Component) -> list[str]:
    """The names of the states that exactly-once batches write there."""
    return [held.slot.name for held in held_states(component) if held.slot.is_of_batches]


def _has_keys(component: Component) -> bool:
    return component.store is not None or _keyed(component.implementation) is not None


def _keyed(bolt: Any) -> Keyed | None:
    if isinstance(bolt, OperatorBolt):
        return bolt.keyed
    return bolt if isinstance(bolt, KeyedBolt) else None


# ---- request calls -------------------------------------------------------------------------------
# A caller of a stream of requests: sends its request again until it has the answer.
#
# The worker of the requests keeps them in memory. If it dies, or the tasks move, the caller sends
# its request to the next one; the same request is processed once at a time, and answered once.
# Requests of the threads of a process that wait together are sent in one call.

_FIRST_S, _LONGEST_S = 0.002, 0.05  # between two calls
HOLD_S = _LONGEST_S  # how long a worker may wait for the end of a request before it answers a call
_LIVES = 3  # of processes that a letter may be lost with


class Caller:
    """One request. The adapter calls the worker with `request`, passes the result to `receive`, and
    waits for `wait_s` seconds, until there is an `answer`."""

    def __init__(self, name: str, value: Any, timeout_s: float, id: str, now: float) -> None:
        SECONDS.check("timeout_s", timeout_s)
        self.answer: list[Any] | None = None
        self.wait_s = _FIRST_S
        self.name, self._value, self._id = name, fields_of(value), id
        self._timeout_s, self._ends_s = timeout_s, now + timeout_s
        self._last = "its worker was not asked"
        self._is_held = False  # by a process
        self._lives_left = _LIVES if isinstance(value, DeadLetter) else inf

    def request(self, now: float) -> Request:
        """What to send. Raises RequestTimeout."""
        if now >= self._ends_s:
            raise RequestTimeout(
                f"{self.name!r} has not answered within {self._timeout_s:g} s: {self._last}"
            )
        return Request(self._id, self._value, self._ends_s - now)

    def receive(self, reply: Reply | RequestProgress | Exception) -> None:
        """Take the reply of the worker, or the error of the call. Raises the error of the reply."""
        self.wait_s = min(self.wait_s * 1.5, _LONGEST_S)
        match reply:
            case Reply(error=None):
                self.answer = reply.rows
            case Reply():
                assert reply.error is not None
                raise reply.error
            case RequestProgress():
                self._last = reply.value
                self._note_lives(reply)
            case _:
                self._last = str(reply)

    def _note_lives(self, reply: RequestProgress) -> None:
        """Raise RequestFailed for a letter whose record seems to end each process that has it."""
        if reply is RequestProgress.ABSENT and self._is_held:
            self._lives_left -= 1
            if self._lives_left <= 0:
                raise RequestFailed(
                    f"a letter of {self.name!r} was lost {_LIVES} times with the process that had "
                    "it: its record may end them"
                )
        self._is_held = reply is not RequestProgress.ABSENT


def worker_of_requests(plan: Plan, name: str) -> int:
    """The worker to ask: a stream of requests, or a spout with dead letters. Raises
    UnknownComponent."""
    names = [spout.id for spout in plan.graph.spouts if spout.level is Level.REQUESTS]
    letters = [
        spout.id for spout in plan.graph.spouts if spout.retry and spout.retry.has_dead_letters
    ]
    if name not in (*names, *letters):
        raise UnknownComponent(
            f"topology {plan.graph.id!r} takes no requests {name!r}; it takes: "
            f"{', '.join(names) or 'none'}; spouts with dead letters: "
            f"{', '.join(letters) or 'none'}"
        )
    return plan.tasks_of(name)[0].worker


def send_until_answered(
    caller: Caller,
    ask_whom: Callable[[float], int],
    ask: Callable[[int, str, Request], Reply | RequestProgress],
    clock: Clock,
    worker: int | None = None,
) -> list[Any]:
    """Send a request until there is an answer, first to `worker`, if that is known. `ask` waits for
    up to `HOLD_S`, and raises ClusterError if a worker does not answer; `ask_whom`, which gets the
    seconds that are left, if the master does not."""
    while True:
        request = caller.request(clock.now())
        reply: Reply | RequestProgress | ClusterError
        try:
            worker = ask_whom(request.left_s) if worker is None else worker
            reply = ask(worker, caller.name, caller.request(clock.now()))
        except ClusterError as error:
            reply = error
        caller.receive(reply)
        if caller.answer is not None:
            return caller.answer
        if isinstance(reply, ClusterError) or reply is RequestProgress.ABSENT:
            worker = None
        if isinstance(reply, ClusterError):
            clock.sleep(caller.wait_s)


class Replies:
    """The replies of a worker that callers have not fetched yet. Its loop uses it, and the threads
    of calls."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Reply | RequestProgress | None, float]] = {}  # None: fetched
        self._look_s = 0.0

    def fetch(self, id: str) -> Reply | RequestProgress:
        """The reply of a request, or how far it is. A caller that asks again has lost the reply;
        then the request is processed again."""
        reply, ends_s = self._found.get(id, (None, 0.0))
        if isinstance(reply, Reply):
            self._found[id] = None, ends_s
        elif reply is None:
            self._found.pop(id, None)
        return RequestProgress.ABSENT if reply is None else reply

    def put(self, id: str, reply: Reply | RequestProgress, ends_s: float) -> None:
        """Keep this for the caller, who waits until `ends_s`."""
        self._found[id] = reply, ends_s

    def lose(self, id: str) -> None:
        """The task that had this request is not here any more: the caller looks for it elsewhere,
        unless there is a reply."""
        if isinstance(self._found.get(id, (None, 0.0))[0], RequestProgress):
            self._found.pop(id, None)

    def has_ended(self, id: str, now: float) -> bool:
        """Whether a request needs no processing: its reply is there, or was just fetched."""
        if now >= self._look_s:
            self._look_s = now + 1.0
            for other, (_, ends_s) in list(self._found.items()):
                if ends_s <= now:
                    self._found.pop(other, None)
        return id in self._found and not isinstance(self._found[id][0], RequestProgress)
