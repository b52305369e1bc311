"""The Ray actor around a worker: its main thread takes the mail, a second thread does the work.

Ray calls the methods below on the main thread. While a topology runs none of them blocks, so a
packet is answered at once however long user code takes (`results` and `stop`, asked when all is
done, wait for the loop). The loop owns the core: no lock anywhere, only a mailbox.
(Measured against self-calls, one per slice of work, which cost 0.6 ms each: +19 % tuples/s.)
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
from typing import Any

import ray
from ray import cloudpickle

from sunshower.actors import blackbox, niceness, watchdog
from sunshower.actors.names import NAMESPACE, master_name, silent, worker_name
from sunshower.clock import SystemClock
from sunshower.errors import SunshowerError
from sunshower.runtime.ids import seeded
from sunshower.runtime.lanes import Inlet
from sunshower.runtime.master import Welcome
from sunshower.runtime.obituary import Obituary
from sunshower.runtime.packets import Answer
from sunshower.runtime.plan import Plan
from sunshower.runtime.usercode import TaskError
from sunshower.runtime.worker import Worker

_TELL_S = 0.25  # how often the master hears, while anything changes
_LOG = logging.getLogger("sunshower")


class WorkerActor:
    """One process with some tasks of a topology. Ray starts it again when it dies."""

    def __init__(self, run: str, worker: int) -> None:
        self._run = run
        self._worker = worker
        self._mailbox: deque[Callable[[], Any]] = deque()
        self._mail = threading.Event()
        self._stopped = False
        self._peers: dict[int, Any] = {}
        self._told: Any = None
        self._told_finished = False
        self._tell_at_s = 0.0
        self._master = ray.get_actor(master_name(run), namespace=NAMESPACE)
        self._process = (ray.get_runtime_context().get_node_id(), os.getpid())
        self._obituary = blackbox.find(run, worker)
        self._inlet: Inlet | None = None
        gc.freeze()  # and seldom: batches in flight make many young objects (+40 % words/s)
        gc.set_threshold(100_000, 20, 50)
        self._thread = threading.Thread(target=self._live, name="sunshower", daemon=True)
        self._thread.start()

    # ---- called by Ray, on the main thread ------------------------------------------------

    def deliver(self, packet: bytes) -> int:
        """A packet of a peer. The answer says whether it will be processed."""
        if self._inlet is None or not self._thread.is_alive():
            return int(Answer.STALE)
        answer = self._inlet.answer(packet)
        if answer is Answer.ACCEPTED:
            self._put(lambda: self._core.receive(packet))
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

    def drain(self) -> None:
        """Let the spouts emit no more."""
        self._put(lambda: self._core.drain())  # noqa: PLW0108 -- the core may not be there yet

    def stop(self) -> list[TaskError]:
        """Close all tasks and end the loop. A second call does nothing.

        Returns what tasks had to say against their end.
        """
        said: list[TaskError] = []
        if self._stopped:
            return said
        if self._thread.is_alive():
            said = self._ask(self._close)
        elif hasattr(self, "_core"):  # an error has ended the loop, and nobody would answer
            said = self._close()
        return said

    # ---- the loop, on its own thread ------------------------------------------------------

    def _live(self) -> None:
        try:
            plan, welcome = self._say_hello()
            niceness.step_back()
            self._inlet = Inlet(self._worker, welcome.life)
            generator = seeded(secrets.randbits(128))
            plan_here: Plan = cloudpickle.loads(plan)
            recorder = blackbox.make(self._run, plan_here, self._worker, welcome.life)
            watchdog.start(recorder, threading.current_thread(), plan_here.graph.config.block_max_s)
            here = (plan_here, self._worker, welcome.life, generator, SystemClock())
            self._core = Worker(
                *here,
                self._inlet,
                recorder,
                delay_s=welcome.delay_s,
                quarantined=welcome.quarantined,
            )
            self._core.welcome(welcome, self._obituary)
            self._loop(plan_here.graph.config.slice_s)
        except SunshowerError as error:
            silent(self._master.broken).remote(str(error))
        except BaseException:
            silent(self._master.broken).remote(
                f"worker {self._worker} hit a defect of sunshower itself; please report this:\n"
                + traceback.format_exc()
            )

    def _say_hello(self) -> tuple[bytes, Welcome]:
        """Not before calls reach this actor.

        What is sent to one that Ray is still starting fails 0.3 to 0.7 s later, and the lane to
        it rests for `lane_retry_s`. (Measured with a kill every 2 s: a third of the replays.)
        """
        me = ray.get_runtime_context().current_actor
        ray.get(me.reachable.options(max_task_retries=-1).remote())
        hello = self._master.hello.remote(self._worker, self._process, self._obituary)
        said: tuple[bytes, Welcome] = ray.get(hello)
        return said

    def _loop(self, slice_s: float) -> None:
        sent_s = 0.0
        while not self._stopped:
            while self._mailbox:
                self._mailbox.popleft()()
            wait_s = self._core.step()
            now = time.monotonic()
            if wait_s != 0 or now - sent_s >= slice_s:
                sent_s = now
                self._send()
                wait_s = self._tell(now, wait_s)
            if wait_s != 0 and not self._mailbox:
                self._mail.wait(wait_s)
                self._mail.clear()

    def _send(self) -> None:
        for peer, seq, packet in self._core.outgoing():
            if peer not in self._peers:
                name = worker_name(self._run, peer)
                self._peers[peer] = ray.get_actor(name, namespace=NAMESPACE)
            answer = self._peers[peer].deliver.remote(packet).future()
            answer.add_done_callback(partial(self._answered, peer, seq))

    def _answered(self, peer: int, seq: int, call: Future[int]) -> None:
        """On a thread of Ray's: only into the mailbox."""
        answer = None if call.exception() else Answer(call.result())
        self._put(lambda: self._core.answered(peer, seq, answer))

    def _tell(self, now: float, wait_s: float | None) -> float | None:
        """Tell the master what has changed, now and then. Returns how long to wait at most."""
        finished = self._core.finished
        if now < self._tell_at_s and finished is self._told_finished:
            left_s = self._tell_at_s - now
            return wait_s if wait_s == 0 else min(left_s, left_s if wait_s is None else wait_s)
        self._log()
        stats = self._core.stats()
        counts = [(task.counts, task.done, task.health) for task in stats.tasks]
        if (counts, finished, stats.idle) != self._told:
            self._told, self._told_finished = (counts, finished, stats.idle), finished
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

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Have the loop answer; whatever it raises is raised here."""
        answer: Future[Any] = Future()

        def fact() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        self._put(fact)
        return answer.result(timeout=30)


WorkerClass = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=0)(WorkerActor)
