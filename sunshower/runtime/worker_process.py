"""The process of a worker: the part that Ray and the simulator share.

Adapters derive from it. The abstract methods are the port: how to call the master, where to store
what moves in a rebalance, and what a new life needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from sunshower.clock import Clock
from sunshower.errors import LifecycleError, SunshowerError, VersionMismatch, user_errors
from sunshower.runtime.control import events
from sunshower.runtime.control.events import DesiredState, Welcome
from sunshower.runtime.control.failure_detector import Lease
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.events.event_log import EventWriter
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.events.trace_recorder import TraceRecorder, WorkerTraces, unix_offset
from sunshower.runtime.plan import Plan, Task
from sunshower.runtime.queries import Query, Replies, answer
from sunshower.runtime.tasks.flight_recorder import CrashReport, Recorder
from sunshower.runtime.tasks.letter_replays import taker_of
from sunshower.runtime.tasks.spouts.source import ReservationStore
from sunshower.runtime.tasks.task_transfer import check_nothing_kept
from sunshower.runtime.transport.packets import Answer
from sunshower.runtime.transport.peer_link import PacketReceiver
from sunshower.runtime.worker import Worker
from sunshower.texts import describe_error
from sunshower.topologies.describe import CodePart, code_parts
from sunshower.topologies.requests import Reply, Request, RequestProgress

STATS_S = 0.25  # interval of statistics to the master, while they change


@dataclass(frozen=True, slots=True)
class Equipment:
    """What an adapter provides for one life of a worker."""

    generator: np.random.Generator
    clock: Clock
    recorder: Recorder
    reservations: ReservationStore | None
    event_writer: EventWriter | None
    event_clock: Clock  # for the times of events
    wake: Callable[[], None] | None  # the loop, from any thread; None: threads are not simulated


class WorkerProcessBase(ABC):
    """One process with some tasks of a topology, through its lives.

    After `start` the adapter says hello to the master whenever `greeting` is set, and passes the
    answer to `begin`. Else it calls `read_mail`, the methods of `core`, and `send_stats` again and
    again, all in one thread.
    """

    plan: Plan  # of the present life; `start` sets it without the tasks of the last rebalance
    plan_number: int  # its number
    lease: Lease  # likewise

    def __init__(self, worker: int) -> None:
        self.core: Worker | None = None  # None until the first Welcome
        self.life = 0  # likewise
        self.greeting = True  # until the next life begins
        self.mailbox: deque[Callable[[], Any]] = deque()
        self._replies = Replies()
        self._worker = worker
        self._crash_report: CrashReport | None = None
        self._packet_receiver: PacketReceiver | None = None
        self._staying: dict[int, TaskTransfer] = {}  # tasks that stay in this process
        self._move = 0  # the last rebalance that this process knows of
        self._keeping = False  # whether what is packed goes into a savepoint
        self._last_pulse: tuple[object, ...] | None = None  # as last sent to the master
        self._trace_recorder: TraceRecorder | None = None  # kept through all lives
        self._trace_epoch_s: float | None = None  # Unix time less that of the recorder's clock
        self._changed_s = inf  # when the statistics were first seen to differ from those
        self._stats_due_s = 0.0  # on the process's clock: no statistics before that

    # ---- the port: implemented by the adapter ------------------------------------------------

    @abstractmethod
    def wake(self) -> None:
        """Let the loop read the mailbox soon."""

    @abstractmethod
    def call_master(self, event: events.Event) -> None:
        """Send an event to the master, without waiting for it."""

    @abstractmethod
    def equip(self, plan: Plan, life: int) -> Equipment:
        """Create what a new life of the worker needs."""

    @abstractmethod
    def load_plan(self, number: int) -> Plan:
        """The plan that the master has saved under that number."""

    @abstractmethod
    def load_transfer(self, move: int, task: Task) -> TaskTransfer | None:
        """A task's state that was stored in rebalance number `move`; None if there is none."""

    @abstractmethod
    def save_transfer(self, move: int, task: Task, transfer: TaskTransfer, keeping: bool) -> None:
        """Store a task's state, unless a former life of this worker has. `keeping`: other code
        will read it, from a savepoint.

        Raises any exception but SunshowerError if it cannot be copied.
        """

    def machine(self) -> tuple[str, float, int] | None:
        """As WorkerStats.machine."""
        return None

    def thread(self) -> tuple[float, float] | None:
        """As WorkerStats.thread; called on that thread."""
        return None

    @abstractmethod
    def log(self, line: str) -> None:
        """Log a line about failures."""

    # ---- called by the master and by other workers ---------------------------------------------

    def peers(self, lives: dict[int, int], crash_reports: list[CrashReport]) -> None:
        """The master sends the lives of all workers, and the crash reports of former ones."""
        self.put(lambda: self._core.peers(lives, crash_reports))

    def desired_state(self, desired_state: DesiredState) -> None:
        """The master sends a new DesiredState."""
        self.put(partial(self._receive_desired_state, desired_state))

    def report(self) -> None:
        """A new master requests the statistics of this worker."""
        self.put(self._forget_stats)

    def pack(self, move: int, leaving: list[int], fresh: list[int]) -> None:
        """End this life for rebalance number `move`, and store the state of `leaving` tasks, but of
        `fresh` ones only check that they keep nothing."""
        self.put(partial(self._pack, move, leaving, fresh))

    def again(self, move: int) -> None:
        """Begin a new life, after the move of rebalance number `move`."""
        self.put(partial(self._begin_again, move))

    def accept(self, data: bytes) -> Answer:
        """Receive a packet of a peer. The answer says whether it will be processed.

        A packet of another version ends the topology: sent again, it would be refused again."""
        packet_receiver = self._packet_receiver
        if packet_receiver is None:
            return Answer.STALE
        try:
            answer = packet_receiver.answer(data)
        except VersionMismatch as error:
            self.put(partial(_raise, error))
            return Answer.REFUSED
        if answer is Answer.ACCEPTED:
            self.put(partial(self._receive, packet_receiver, data))
        return answer

    # ---- called by the adapter ---------------------------------------------------------------

    def start(self, plan: Plan, crash_report: CrashReport | None, number: int = 0) -> None:
        """`plan`: the present one, and its number; `crash_report`: of the worker's previous
        process, perhaps of a task that only the master knows yet."""
        self.plan, self.plan_number, self._crash_report = plan, number, crash_report
        self.lease = Lease(plan.graph.config.worker_timeout_s)

    def put(self, fact: Callable[[], Any]) -> None:
        """Add a call to the mailbox, from any thread."""
        self.mailbox.append(fact)
        self.wake()

    def read_mail(self) -> None:
        """Run the calls in the mailbox. What follows the end of a life waits for the next one."""
        while self.mailbox and not self.greeting:
            self.mailbox.popleft()()
        if self.core is not None:
            self.core.look_at_links()

    def tick(self, now: float) -> None:
        """Note that the thread of the heartbeats runs; called once in `beat_s` at least. If it did
        not for long, the whole process was stopped (SIGSTOP, a suspended machine), and deadlines
        continue where they were: what arrived meanwhile is not read yet."""
        if (stopped_s := self.lease.stopped_for(now)) and self.core is not None:
            self.put(lambda: self._core.stopped_for(stopped_s))
            self.lease.awake_s = now
        self.lease.ticked_s = now  # not before: the loop continues now

    def beat_answered(self, life: int, sent_s: float, answer: bool | None, now: float) -> bool:
        """Apply the master's answer to a heartbeat; None: there was none. Returns whether this
        process was replaced and must end. While the lease did not hold, no verdict was read."""
        if answer:
            if (lapsed_s := self.lease.lapsed_for(now)) and self.core is not None:
                self.put(lambda: self._core.stopped_for(lapsed_s))  # read before the next step
                self.lease.awake_s = now
            self.lease.renewed_s = sent_s
            self.wake()
        # In this order: `begin` sets the life first, on the other thread.
        return answer is False and not self.greeting and life == self.life

    def begin(self, welcome: Welcome, hello_s: float = inf) -> None:
        """Create a new core: the process has started, or a rebalance has moved tasks. `hello_s`:
        when the hello was sent that was answered; the lease begins then."""
        if self.lease.renewed_s == inf:  # no heartbeat was answered yet, and maybe none ever is
            self.lease.renewed_s = hello_s
        self.life = welcome.life
        self.greeting = False
        if welcome.plan != self.plan_number:
            self.plan, self.plan_number = self.load_plan(welcome.plan), welcome.plan
        plan = self.plan = self.plan.with_tasks(welcome.tasks)
        if self._crash_report is not None:
            fits = self._crash_report.fits(plan)  # it may be damaged, or of a task that ended
            report = replace(self._crash_report, silent_s=welcome.silent_s)
            self._crash_report = report if fits else None
        staying, transfer = self._staying, dict[int, TaskTransfer]()
        for task in plan.tasks_on(self._worker):
            if task.id in staying:
                transfer[task.id] = staying[task.id]
            elif welcome.move and (moved := self.load_transfer(welcome.move, task)) is not None:
                transfer[task.id] = moved
        self._move, self._staying = welcome.move, {}
        self._keeping = welcome.desired_state.keeping
        equipment = self.equip(plan, welcome.life)
        self._clock = equipment.clock
        if self._trace_recorder is None and plan.graph.config.trace_share:
            self._trace_recorder = TraceRecorder(equipment.event_clock)
        self._packet_receiver = PacketReceiver(self._worker, welcome.life)
        self.core = Worker(
            plan,
            self._worker,
            welcome.life,
            equipment.generator,
            equipment.clock,
            self._packet_receiver,
            equipment.recorder,
            delay_s=welcome.delay_s,
            quarantined=welcome.quarantined,
            transfer=transfer,
            event_writer=equipment.event_writer,
            trace_recorder=self._trace_recorder,
            reservations=equipment.reservations,
            wake=equipment.wake,
        )
        self.core.welcome(welcome, self._crash_report)
        self._forget_stats()

    def send_stats(self, now: float, delay_s: float = 0.0) -> bool:
        """Send the statistics to the master if they have changed, `delay_s` after the change was
        first seen; log what there is to log. Returns whether a change waits."""
        self._log_notices()
        pulse = self._core.pulse()
        self._changed_s = inf if pulse == self._last_pulse else min(self._changed_s, now)
        if now >= self._changed_s + delay_s:
            self._last_pulse, self._stats_due_s, self._changed_s = pulse, now + STATS_S, inf
            stats = replace(self._core.stats(), machine=self.machine(), thread=self.thread())
            self.call_master(events.Statistics(stats))
        return self._changed_s < inf

    def results(self, component: str) -> list[Any]:
        """`result()` of the component's tasks here."""
        return self._core.results(component)

    def query(self, query: Query) -> list[tuple[Any, Any]]:
        """The keys and values that a query asks for."""
        return answer(query, self._core.plan, self._core.objects(query.component))

    def code_parts(self, component: str) -> list[CodePart]:
        """The code of the user that a component runs. Any thread may call it, also while user code
        runs."""
        return code_parts(self._core.plan.graph.components[component])

    def traces(self, root: int | None, unix_time: Callable[[], float]) -> WorkerTraces:
        """The recorded trees, or the one with this root. Any thread may call it, also while user
        code runs."""
        if (recorder := self._trace_recorder) is None:
            return WorkerTraces(self._worker, 0.0, {})
        if self._trace_epoch_s is None:  # the times of a tree are the same in each answer
            self._trace_epoch_s = unix_offset(unix_time, recorder.clock)
        return WorkerTraces(self._worker, self._trace_epoch_s, recorder.trees(root))

    def ask(self, name: str, requests: Sequence[Request]) -> list[Reply | RequestProgress]:
        """Callers send requests, perhaps again. Returns at once what there is to say to each; any
        thread may call it."""
        replies = [self._replies.fetch(request.id) for request in requests]
        unended = [
            r for r, reply in zip(requests, replies, strict=True) if type(reply) is not Reply
        ]
        if unended:
            self.put(partial(self._ask_spout, name, unended))
        return replies

    def close(self) -> list[TaskError]:
        """Close all tasks. Returns the errors that they raised."""
        errors = [] if self.core is None else self.core.close()
        self._log_notices()
        return errors

    def reply(self, id: str, reply: Reply | RequestProgress, ends_s: float) -> None:
        """Keep this for a caller, who waits until `ends_s`."""
        self._replies.put(id, reply, ends_s)

    # ---- helpers -------------------------------------------------------------------------------

    @property
    def _core(self) -> Worker:
        assert self.core is not None, f"worker {self._worker} works, and was never welcomed"
        return self.core

    def _receive(self, packet_receiver: PacketReceiver, data: bytes) -> None:
        if packet_receiver is self._core.packet_receiver:  # not that of a former life
            self._core.receive(data)

    def _ask_spout(self, name: str, requests: Sequence[Request]) -> None:
        spouts, now = self._core.open_spouts(name)[:1], self._clock.now()
        for request in requests:
            if self._replies.has_ended(request.id, now):
                continue
            if not spouts:  # it has moved, or is not open
                self._replies.lose(request.id)
            else:
                taker = taker_of(spouts[0].spout, spouts[0].letters)
                taker.ask(request, partial(self.reply, request.id))

    def _pack(self, move: int, leaving: list[int], fresh: list[int]) -> None:
        if self._move >= move:
            return  # an old message
        try:
            self._core.pack(leaving, partial(self._save, move, fresh))
        except LifecycleError as error:
            self.call_master(events.PackFailed(self._worker, self.life, str(error)))
        else:
            self.call_master(events.Packed(self._core.stats()))

    def _receive_desired_state(self, desired_state: DesiredState) -> None:
        self._keeping = desired_state.keeping
        self._core.desired_state(desired_state)

    def _save(self, move: int, fresh: list[int], id: int, transfer: TaskTransfer) -> None:
        task = next(candidate for candidate in self._core.plan.tasks if candidate.id == id)
        if id in fresh:
            check_nothing_kept(task.component, transfer)
            return
        try:
            self.save_transfer(move, task, transfer, self._keeping)
        except SunshowerError:
            raise
        except user_errors() as error:
            raise LifecycleError(
                f"{task.component!r} cannot move to another process: what its snapshot() returned, "
                f"or a message id, cannot be copied ({describe_error(error)}). Return plain values"
            ) from error

    def _begin_again(self, move: int) -> None:
        if self._move < move:  # else an old message
            self._staying, self._crash_report = self._core.pack(()), None
            self._log_notices()
            self.greeting = True

    def _forget_stats(self) -> None:
        self._last_pulse, self._stats_due_s = None, 0.0

    def _log_notices(self) -> None:
        for line in () if self.core is None else self.core.notices():
            self.log(line)


def _raise(error: SunshowerError) -> None:
    raise error
