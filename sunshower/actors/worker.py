"""The Ray actor around a worker: its main thread receives calls, a second thread runs the loop.

Ray calls the methods below on the main thread. While a topology runs, none of them blocks, so a
packet is answered at once, however long user code takes (`results` and `stop`, called at the end,
wait for the loop). Only the loop uses the core: there is a mailbox and no lock.
(Measured against self-calls, one per slice of work, which cost 0.6 ms each: +19 % tuples/s.)

Ray ends a worker with SIGTERM when its node shuts down, possibly in the middle of user code: no
task is closed then, and the other workers treat it as any crash.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import ray
from ray import cloudpickle

from sunshower.actors import archive, flight_recorder, niceness, watchdog
from sunshower.actors.archive import Pen
from sunshower.actors.names import CALL_S, NAMESPACE, master_name, silent, topology_of, transfer_key
from sunshower.actors.post import PacketSender
from sunshower.actors.processes import end_with_ray
from sunshower.actors.store import RayReservationStore, RayStore
from sunshower.actors.watchdog import Slow
from sunshower.clock import SystemClock
from sunshower.errors import ClusterError, StoreUnreachable, SunshowerError, TopologyFailed
from sunshower.runtime.control.crash_report import CrashReport
from sunshower.runtime.control.flight_recorder import Recorder
from sunshower.runtime.control.master import DesiredState, Welcome
from sunshower.runtime.control.placement import placed
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.events.event_log import EventWriter
from sunshower.runtime.plan import Plan
from sunshower.runtime.tasks.user_code import TaskError
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.transport.packets import Answer
from sunshower.runtime.transport.peer_link import PacketReceiver
from sunshower.runtime.worker import Worker

_READY_S = 0.1  # how often to check whether the loop ended before it began
_TELL_S = 0.25  # interval of statistics to the master, while they change
_TURN_S = 0.05  # the shortest interval, when `finished` changes
_ANSWER_S = CALL_S * 2 / 3  # for an answer of the loop, between two calls of user code
_CLOSE_S = CALL_S - 1.0  # for cleanup() of all tasks
_STORE_RETRY_S, _STORE_RETRY_MAX_S = 0.1, 10.0  # the first wait, and the longest
_LOG = logging.getLogger("sunshower")

T = TypeVar("T")


class WorkerActor:
    """One process with some tasks of a topology. Ray restarts it when it dies."""

    def __init__(self, run: str, worker: int) -> None:
        end_with_ray()
        self._run = run
        self._worker = worker
        self._mailbox: deque[Callable[[], Any]] = deque()
        self._mail = threading.Event()
        self._stopped = False
        self._told: Any = None
        self._told_finished = False
        self._tell_at_s = 0.0
        self._master = ray.get_actor(master_name(run), namespace=NAMESPACE)
        self._process = (ray.get_runtime_context().get_node_id(), os.getpid())
        self._crash_report: CrashReport | None = None  # of the previous process
        self._packet_receiver: PacketReceiver | None = None
        self._ready = threading.Event()
        self._greeting = False  # between hello and the start of the new life
        self._has_begun = False  # whether there is a core
        self._recorder = Recorder()
        self._pen: Pen | None = None  # if there is an event log
        gc.freeze()  # and collect seldom: batches create many young objects (+40 % words/s)
        gc.set_threshold(100_000, 20, 50)
        self._thread = threading.Thread(target=self._live, name="sunshower", daemon=True)
        self._thread.start()

    # ---- called by Ray, on the main thread ------------------------------------------------

    def deliver(self, packet: bytes) -> int:
        """Receive a packet of a peer. The answer says whether it will be processed."""
        while self._greeting and self._thread.is_alive():
            self._ready.wait(_READY_S)  # the sender knew of this life before it began
        packet_receiver = self._packet_receiver
        if packet_receiver is None or not self._thread.is_alive():
            return int(Answer.STALE)
        answer = packet_receiver.answer(packet)
        if answer is Answer.ACCEPTED:
            self._put(partial(self._receive, packet_receiver, packet))
        return int(answer)

    def reachable(self) -> None:
        """Return at once, as soon as calls reach this actor."""

    def peers(self, lives: dict[int, int], crash_reports: list[CrashReport]) -> None:
        """The master sends the lives of all workers, and the crash reports of former ones."""
        self._put(lambda: self._core.peers(lives, crash_reports))

    def report(self) -> None:
        """A new master requests the process and the statistics of this worker."""
        silent(self._master.here).remote(self._worker, self._process)
        self._put(self._forget_told)

    def results(self, component: str) -> list[Any]:
        """`result()` of the component's tasks here, called between two slices of work."""
        found: list[Any] = self._ask(lambda: self._core.results(component))
        return found

    def desired_state(self, desired_state: DesiredState) -> None:
        """The master sends a new DesiredState."""
        self._put(partial(self._obey, desired_state))

    def pack(self, move: int, leaving: list[int]) -> None:
        """End this life for rebalance number `move`, and store the state of `leaving` tasks."""
        self._put(partial(self._retry_store, partial(self._pack, move, leaving)))

    def again(self, move: int) -> None:
        """Begin a new life, after the move of rebalance number `move`."""
        self._put(partial(self._begin_again, move))

    def stop(self) -> list[TaskError]:
        """Close all tasks and end the loop. A second call does nothing.

        Returns the errors that tasks raised.
        """
        said: list[TaskError] = []
        if self._stopped:
            return said
        if self._thread.is_alive():
            said = self._ask(self._close, _CLOSE_S)
        elif self._has_begun:  # an error has ended the loop, which cannot answer
            said = self._close()
        return said

    # ---- the loop, on its own thread ------------------------------------------------------

    def _live(self) -> None:
        try:
            former = ray.get(self._master.place_of.remote(self._worker))
            if former is not None:
                self._crash_report = flight_recorder.find_on(former[0], self._run, self._worker)
            else:  # the first life, or a master that does not know the former one
                self._crash_report = flight_recorder.find(self._run, self._worker)
            plan, welcome = self._retry_store(self._say_hello)
            niceness.step_back()
            self._submitted: Plan = cloudpickle.loads(plan)
            self._archive = self._retry_store(partial(archive.find, self._run))
            config = self._submitted.graph.config
            watchdog.start(
                lambda: self._recorder,
                threading.current_thread(),
                config.block_max_s,
                self._report_slow,
            )
            self._begin(welcome, {})
            self._loop(config.slice_s)
        except SunshowerError as error:
            silent(self._master.broken).remote(str(error))
        except BaseException:
            silent(self._master.broken).remote(
                f"worker {self._worker} hit a defect of sunshower itself; please report this:\n"
                + traceback.format_exc()
            )

    def _retry_store(self, attempt: Callable[[], T]) -> T:
        """Return the result of `attempt`; call it again, with back-off, while the store does not
        answer this worker or the master."""
        wait_s = _STORE_RETRY_S
        while True:
            try:
                return attempt()
            except StoreUnreachable as error:
                why = getattr(error, "cause", error)  # at the master: without Ray's traceback
                _LOG.warning("worker %d tries again in %g s: %s", self._worker, wait_s, why)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _STORE_RETRY_MAX_S)

    def _say_hello(self) -> tuple[bytes, Welcome]:
        """Say hello to the master, but not before calls reach this actor.

        A call to an actor that Ray is still starting fails 0.3 to 0.7 s later, and the peer link to
        it pauses for `peer_link_retry_s`. (With a kill every 2 s: a third of the replays.)
        """
        self._greeting = False  # from an earlier attempt
        me = ray.get_runtime_context().current_actor
        ray.get(me.reachable.options(max_task_retries=-1).remote())
        self._ready.clear()
        self._greeting = True  # not before: calls waiting in `deliver` block `reachable`
        hello = self._master.hello.remote(self._worker, self._process, self._crash_report)
        said: tuple[bytes, Welcome] = ray.get(hello)
        return said

    def _begin(self, welcome: Welcome, transfer: dict[int, TaskTransfer]) -> None:
        """Create a new core: the process has started, or a rebalance has moved tasks."""
        plan = placed(self._submitted, welcome.places)
        if welcome.move:
            self._retry_store(partial(self._fetch_transfer, plan, welcome.move, transfer))
        spouts = {spout.id for spout in plan.graph.spouts}
        tasks = [task.id for task in plan.tasks_on(self._worker) if task.component in spouts]
        marks = self._retry_store(partial(RayReservationStore, self._run, tasks))
        self._move = welcome.move
        self._packet_receiver = PacketReceiver(self._worker, welcome.life)
        self._greeting = False
        self._ready.set()
        self._recorder = flight_recorder.make(self._run, plan, self._worker, welcome.life)
        if self._recorder.unwritable is not None:
            _LOG.warning(
                "worker %d cannot write crash reports (%s): until it is started again, a record "
                "that kills its process uses up no attempt",
                self._worker,
                self._recorder.unwritable,
            )
        generator, clock = seeded(secrets.randbits(128)), SystemClock()
        self._core = Worker(
            plan,
            self._worker,
            welcome.life,
            generator,
            clock,
            self._packet_receiver,
            self._recorder,
            delay_s=welcome.delay_s,
            quarantined=welcome.quarantined,
            transfer=transfer,
            event_writer=self._new_event_writer(welcome.life, clock),
            marks=marks,
        )
        self._has_begun = True
        self._post = PacketSender(self._run, self._core, self._put)
        self._core.welcome(welcome, self._crash_report)

    def _new_event_writer(self, life: int, clock: SystemClock) -> EventWriter | None:
        if self._archive is None:
            return None
        if self._pen is not None:
            self._pen.close()
        self._pen = Pen(self._archive, self._worker, life)
        return EventWriter(clock, self._pen.put, self._archive.sample)

    def _fetch_transfer(self, plan: Plan, move: int, transfer: dict[int, TaskTransfer]) -> None:
        store = RayStore()
        for task in plan.tasks_on(self._worker):
            if task.id not in transfer:
                packed = store.read(transfer_key(self._run, move, task.id))
                if packed is not None:
                    transfer[task.id] = cloudpickle.loads(packed)

    def _obey(self, desired_state: DesiredState) -> None:
        self._core.desired_state(desired_state)

    def _pack(self, move: int, leaving: list[int]) -> None:
        if self._move >= move:
            return  # an old message
        store = RayStore()
        for task, transfer in self._core.pack(leaving).items():
            key = transfer_key(self._run, move, task)
            if task in leaving and store.read(key) is None:  # a former life may have stored it
                store.write(key, _pickle(self._core.plan, task, transfer))
        silent(self._master.packed).remote(self._core.stats())

    def _begin_again(self, move: int) -> None:
        if self._move >= move:
            return
        transfer, self._crash_report = self._core.pack(()), None
        self._log()
        _, welcome = self._retry_store(self._say_hello)
        mine = {task.id for task in placed(self._submitted, welcome.places).tasks_on(self._worker)}
        self._begin(welcome, {task: own for task, own in transfer.items() if task in mine})
        self._forget_told()

    def _receive(self, packet_receiver: PacketReceiver, packet: bytes) -> None:
        if packet_receiver is self._core.packet_receiver:  # not that of a former life
            self._core.receive(packet)

    def _report_slow(self, slow: Slow) -> None:
        """Log a slow call and report it to the master. Runs on the watchdog's thread."""
        task = next(task for task in self._submitted.tasks if task.id == slow.task)
        _LOG.warning(
            "%s[%d] has been in one call for %.0f s; after %g s (block_max_s) its process is ended "
            "and started again. It is in:\n%s",
            task.component,
            task.index,
            slow.for_s,
            self._submitted.graph.config.block_max_s,
            "".join(slow.stack.format()),
        )
        silent(self._master.stuck).remote(self._worker, slow.task, slow.for_s, slow.where)

    def _loop(self, slice_s: float) -> None:
        sent_s = 0.0
        while not self._stopped:
            while self._mailbox:
                self._mailbox.popleft()()
            wait_s = self._core.step()
            now = time.monotonic()
            if wait_s != 0 or now - sent_s >= slice_s:
                sent_s = now
                if self._pen is not None:
                    self._pen.check()
                late_s = self._post.send(now)
                wait_s = _sooner(late_s, self._tell(now, wait_s))
            if wait_s != 0 and not self._mailbox:
                self._mail.wait(wait_s)
                self._mail.clear()

    def _tell(self, now: float, wait_s: float | None) -> float | None:
        """Send changed statistics to the master, if they are due. Returns the longest wait."""
        finished = self._core.finished
        turned = finished is not self._told_finished
        due_s = self._tell_at_s - (_TELL_S - _TURN_S if turned else 0.0)
        if now < due_s:
            return _sooner(wait_s, due_s - now)
        self._log()
        stats = self._core.stats()
        counts = [(task.counts, task.done, task.health) for task in stats.tasks]
        if (counts, finished, stats.idle, stats.at_rest) != self._told:
            self._told = (counts, finished, stats.idle, stats.at_rest)
            self._told_finished = finished
            self._tell_at_s = now + _TELL_S
            silent(self._master.hear).remote(stats)
        return wait_s

    def _forget_told(self) -> None:
        self._told, self._tell_at_s = None, 0.0

    def _close(self) -> list[TaskError]:
        self._stopped = True
        said = self._core.close()
        self._log()
        flight_recorder.remove(self._run, self._worker)
        return said

    def _log(self) -> None:
        for line in self._core.notices():
            _LOG.warning("%s", line)

    def _put(self, fact: Callable[[], Any]) -> None:
        self._mailbox.append(fact)
        self._mail.set()

    def _ask(self, question: Callable[[], Any], within_s: float = _ANSWER_S) -> Any:
        """Call `question` on the loop's thread; its errors are raised here. Raises ClusterError if
        the loop is busy, before the caller's own timeout, which would not give the reason."""
        answer: Future[Any] = Future()

        def fact() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        self._put(fact)
        try:
            return answer.result(timeout=within_s)
        except TimeoutError:
            raise ClusterError(
                f"worker {self._worker} of {topology_of(self._run)!r} has not come to an answer "
                f"for {within_s:g} s: a call of user code takes that long; ask again later"
            ) from None


def _sooner(one_s: float | None, other_s: float | None) -> float | None:
    """The shorter of two waits; None means no limit."""
    return min((wait_s for wait_s in (one_s, other_s) if wait_s is not None), default=None)


def _pickle(plan: Plan, task: int, transfer: TaskTransfer) -> bytes:
    try:
        data: bytes = cloudpickle.dumps(transfer)
    except Exception as error:
        component = next(t.component for t in plan.tasks if t.id == task)
        raise TopologyFailed(
            f"{component!r} cannot move to another process: what its snapshot() returned, or a "
            f"message id, cannot be pickled ({type(error).__name__}: {error}). Return plain values"
        ) from error
    return data


WorkerClass = ray.remote(
    num_cpus=0, scheduling_strategy="SPREAD", max_restarts=-1, max_task_retries=0
)(WorkerActor)
