"""The Ray actor around a worker: its main thread takes the mail, a second thread does the work.

Ray calls the methods below on the main thread. While a topology runs none of them blocks, so a
packet is answered at once however long user code takes (`results` and `stop`, asked when all is
done, wait for the loop). The loop owns the core: no lock anywhere, only a mailbox.
(Measured against self-calls, one per slice of work, which cost 0.6 ms each: +19 % tuples/s.)

Ray ends a worker with SIGTERM when its node shuts down, and user code may be in the middle of
anything: no task is closed then, and the others see a death like any other.
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

from sunshower.actors import archive, blackbox, niceness, watchdog
from sunshower.actors.archive import Pen
from sunshower.actors.names import CALL_S, NAMESPACE, luggage_key, master_name, silent, topology_of
from sunshower.actors.post import Post
from sunshower.actors.processes import end_with_ray
from sunshower.actors.store import RayMarks, RayStore
from sunshower.actors.watchdog import Slow
from sunshower.clock import SystemClock
from sunshower.errors import ClusterError, StoreUnreachable, SunshowerError, TopologyFailed
from sunshower.runtime.blackbox import Recorder
from sunshower.runtime.history import Scribe
from sunshower.runtime.ids import seeded
from sunshower.runtime.lanes import Inlet
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.master import Welcome, Wish
from sunshower.runtime.obituary import Obituary
from sunshower.runtime.packets import Answer
from sunshower.runtime.placement import placed
from sunshower.runtime.plan import Plan
from sunshower.runtime.usercode import TaskError
from sunshower.runtime.worker import Worker

_READY_S = 0.1  # how often to look whether the loop has ended before it began
_TELL_S = 0.25  # how often the master hears, while anything changes
_TURN_S = 0.05  # how often at most that this worker is finished, or is not any more
_ANSWER_S = CALL_S * 2 / 3  # to come to what is asked, between two calls of user code
_CLOSE_S = CALL_S - 1.0  # for cleanup() of all tasks
_STORE_RETRY_S, _STORE_RETRY_MAX_S = 0.1, 10.0  # the first wait, and the longest
_LOG = logging.getLogger("sunshower")

T = TypeVar("T")


class WorkerActor:
    """One process with some tasks of a topology. Ray starts it again when it dies."""

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
        self._obituary: Obituary | None = None  # of the former process
        self._inlet: Inlet | None = None
        self._ready = threading.Event()
        self._greeting = False  # hello is said, and the new life has not begun
        self._recorder = Recorder()
        self._pen: Pen | None = None  # where a history is kept
        gc.freeze()  # and seldom: batches in flight make many young objects (+40 % words/s)
        gc.set_threshold(100_000, 20, 50)
        self._thread = threading.Thread(target=self._live, name="sunshower", daemon=True)
        self._thread.start()

    # ---- called by Ray, on the main thread ------------------------------------------------

    def deliver(self, packet: bytes) -> int:
        """A packet of a peer. The answer says whether it will be processed."""
        while self._greeting and self._thread.is_alive():
            self._ready.wait(_READY_S)  # the sender knows this life before it has begun
        inlet = self._inlet
        if inlet is None or not self._thread.is_alive():
            return int(Answer.STALE)
        answer = inlet.answer(packet)
        if answer is Answer.ACCEPTED:
            self._put(partial(self._receive, inlet, packet))
        return int(answer)

    def reachable(self) -> None:
        """Answered as soon as calls reach this actor."""

    def peers(self, lives: dict[int, int], obituaries: list[Obituary]) -> None:
        """The master's news of who is in which life, and of the ends of former ones."""
        self._put(lambda: self._core.peers(lives, obituaries))

    def report(self) -> None:
        """A new master asks how this worker stands."""
        silent(self._master.here).remote(self._worker, self._process)
        self._put(self._forget_told)

    def results(self, component: str) -> list[Any]:
        """`result()` of the component's tasks here, asked between two slices of work."""
        found: list[Any] = self._ask(lambda: self._core.results(component))
        return found

    def wish(self, wish: Wish) -> None:
        """What the spouts are to do from now on."""
        self._put(partial(self._obey, wish))

    def pack(self, move: int, leaving: list[int]) -> None:
        """End this life for rebalance number `move`; luggage of tasks that leave is stored."""
        self._put(partial(self._retry_store, partial(self._pack, move, leaving)))

    def again(self, move: int) -> None:
        """Rebalance number `move` has got so far that new lives begin."""
        self._put(partial(self._begin_again, move))

    def stop(self) -> list[TaskError]:
        """Close all tasks and end the loop. A second call does nothing.

        Returns what tasks had to say against their end.
        """
        said: list[TaskError] = []
        if self._stopped:
            return said
        if self._thread.is_alive():
            said = self._ask(self._close, _CLOSE_S)
        elif hasattr(self, "_core"):  # an error has ended the loop, and nobody would answer
            said = self._close()
        return said

    # ---- the loop, on its own thread ------------------------------------------------------

    def _live(self) -> None:
        try:
            former = ray.get(self._master.place_of.remote(self._worker))
            if former is not None:
                self._obituary = blackbox.find_on(former[0], self._run, self._worker)
            else:  # the first life, or a master that has not heard of the former one
                self._obituary = blackbox.find(self._run, self._worker)
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
        """What `attempt` returns: it is called again, with back-off, while the store, here or at
        the master, does not answer. That is no defect of this worker's."""
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
        """Not before calls reach this actor.

        What is sent to one that Ray is still starting fails 0.3 to 0.7 s later, and the lane to
        it rests for `lane_retry_s`. (Measured with a kill every 2 s: a third of the replays.)
        """
        self._greeting = False  # of an attempt before
        me = ray.get_runtime_context().current_actor
        ray.get(me.reachable.options(max_task_retries=-1).remote())
        self._ready.clear()
        self._greeting = True  # not before: what waits in `deliver` holds `reachable` up
        hello = self._master.hello.remote(self._worker, self._process, self._obituary)
        said: tuple[bytes, Welcome] = ray.get(hello)
        return said

    def _begin(self, welcome: Welcome, luggage: dict[int, Luggage]) -> None:
        """A new core: the process has started, or tasks have changed places."""
        plan = placed(self._submitted, welcome.places)
        if welcome.move:
            self._retry_store(partial(self._fetch_luggage, plan, welcome.move, luggage))
        spouts = {spout.id for spout in plan.graph.spouts}
        tasks = [task.id for task in plan.tasks_on(self._worker) if task.component in spouts]
        marks = self._retry_store(partial(RayMarks, self._run, tasks))
        self._move = welcome.move
        self._inlet = Inlet(self._worker, welcome.life)
        self._greeting = False
        self._ready.set()
        self._recorder = blackbox.make(self._run, plan, self._worker, welcome.life)
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
            self._inlet,
            self._recorder,
            delay_s=welcome.delay_s,
            quarantined=welcome.quarantined,
            luggage=luggage,
            scribe=self._new_scribe(welcome.life, clock),
            marks=marks,
        )
        self._post = Post(self._run, self._core, self._put)
        self._core.welcome(welcome, self._obituary)

    def _new_scribe(self, life: int, clock: SystemClock) -> Scribe | None:
        if self._archive is None:
            return None
        if self._pen is not None:
            self._pen.close()
        self._pen = Pen(self._archive, self._worker, life)
        return Scribe(clock, self._pen.put, self._archive.sample)

    def _fetch_luggage(self, plan: Plan, move: int, luggage: dict[int, Luggage]) -> None:
        store = RayStore()
        for task in plan.tasks_on(self._worker):
            if task.id not in luggage:
                packed = store.read(luggage_key(self._run, move, task.id))
                if packed is not None:
                    luggage[task.id] = cloudpickle.loads(packed)

    def _obey(self, wish: Wish) -> None:
        self._core.wish(wish)

    def _pack(self, move: int, leaving: list[int]) -> None:
        if self._move >= move:
            return  # that was long ago
        store = RayStore()
        for task, luggage in self._core.pack(leaving).items():
            key = luggage_key(self._run, move, task)
            if task in leaving and store.read(key) is None:  # a former life may have been here
                store.write(key, _pickle(self._core.plan, task, luggage))
        silent(self._master.packed).remote(self._core.stats())

    def _begin_again(self, move: int) -> None:
        if self._move >= move:
            return
        luggage, self._obituary = self._core.pack(()), None
        self._log()
        _, welcome = self._retry_store(self._say_hello)
        mine = {task.id for task in placed(self._submitted, welcome.places).tasks_on(self._worker)}
        self._begin(welcome, {task: own for task, own in luggage.items() if task in mine})
        self._forget_told()

    def _receive(self, inlet: Inlet, packet: bytes) -> None:
        if inlet is self._core.inlet:  # and not that of a life that is over
            self._core.receive(packet)

    def _report_slow(self, slow: Slow) -> None:
        """Log a call that does not return, and tell the master. On the watchdog's thread."""
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
        """Tell the master what has changed, now and then. Returns how long to wait at most."""
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
        blackbox.remove(self._run, self._worker)
        return said

    def _log(self) -> None:
        for line in self._core.notices():
            _LOG.warning("%s", line)

    def _put(self, fact: Callable[[], Any]) -> None:
        self._mailbox.append(fact)
        self._mail.set()

    def _ask(self, question: Callable[[], Any], within_s: float = _ANSWER_S) -> Any:
        """Have the loop answer; whatever it raises is raised here. Raises ClusterError if it is too
        busy to: sooner than who asks gives up, and would not know why."""
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
    """The shorter of two waits; None is one without end."""
    return min((wait_s for wait_s in (one_s, other_s) if wait_s is not None), default=None)


def _pickle(plan: Plan, task: int, luggage: Luggage) -> bytes:
    try:
        data: bytes = cloudpickle.dumps(luggage)
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
