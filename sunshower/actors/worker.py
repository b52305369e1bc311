"""The Ray actor around a worker; separate because it is a process of its own.

Its main thread receives calls, a second thread runs the loop. Ray calls the methods below on the
main thread. While a topology runs, none of them blocks (`results` and `stop`, called at the end,
wait for the loop), except `ask`, which has threads of its own. Packets of other workers arrive at
sockets, see `packets.py`. Only the loop uses the core: there is a mailbox and no lock.
(Measured against self-calls, one per slice of work, which cost 0.6 ms each: +19 % tuples/s.)

Ray ends a worker with SIGTERM when its node shuts down, possibly in the middle of user code: no
task is closed then, and the other workers treat it as any crash.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar, cast

import ray

from sunshower.actors import event_log_files, flight_recorder
from sunshower.actors.event_log_files import EventLogFile, EventLogFolder
from sunshower.actors.names import CALL_S, NAMESPACE, master_name, silent, topology_of
from sunshower.actors.packets import Endpoint, PacketSender, PacketSockets
from sunshower.actors.processes import RayProcess, end_with_ray
from sunshower.actors.profiles import PROFILER, WorkerProfile
from sunshower.actors.shipping import ShippedAnswer
from sunshower.actors.store import RayReservationStore, RayStore, RayTransferStore
from sunshower.clock import SystemClock
from sunshower.errors import ClusterError, StoreUnreachable, SunshowerError, user_errors
from sunshower.runtime.control import events
from sunshower.runtime.control.events import Welcome
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.events.event_log import EventWriter
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.events.log_lines import (
    FAILURES_LOGGER,
    LINE_BYTES,
    LogCapture,
    LogLine,
    Place,
)
from sunshower.runtime.events.trace_recorder import WorkerTraces
from sunshower.runtime.garbage import collect_seldom
from sunshower.runtime.plan import Plan, Task
from sunshower.runtime.profiles import TASK_FILE
from sunshower.runtime.queries import Query
from sunshower.runtime.tasks.flight_recorder import Recorder, Running
from sunshower.runtime.tasks.user_errors import place_in
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.transport.packets import Answer
from sunshower.runtime.worker_process import STATS_S, Equipment, WorkerProcessBase
from sunshower.secret import without_secrets
from sunshower.texts import clip
from sunshower.topologies.requests import Reply, Request, RequestProgress

_TURN_S = 0.05  # the shortest interval, when `finished` changes
_ANSWER_S = CALL_S * 2 / 3  # for an answer of the loop, between two calls of user code
_CLOSE_S = CALL_S - 1.0  # for cleanup() of all tasks
# A call costs as much as several hops of a tuple, which has left this process by then.
_STATS_DELAY_S = 0.02
_STATS_AGAIN_S = 10.0  # statistics are sent again, although unchanged: a call may have been lost
REQUESTS, _REQUEST_THREADS = "requests", 16  # what answers the calls of clients with requests
_STORE_RETRY_S, _STORE_RETRY_MAX_S = 0.1, 10.0  # the first wait, and the longest
_LOG = logging.getLogger("sunshower")
_FAILURES = logging.getLogger(FAILURES_LOGGER)

T = TypeVar("T")


# ---- printed lines -------------------------------------------------------------------------------
# Captures what Python code in a worker prints, as lines for the log of the topology.
#
# print ──PrintedStream──▶ PrintedLines ──take──▶ LogCapture (`runtime/events/log_lines.py`)

_WAITING_MAX = 1000  # lines that were not taken yet; the oldest are dropped
_STORED_MAX = 5  # lines of one source line until `take`; LogCapture admits no more
# Functions that print for their callers, and those whose output is not that of user code: a record
# of `logging` is captured before a handler prints it, and sinks have their own output.
_PRINTERS = {"traceback", "warnings", "pprint"}
_NOT_USER_CODE = {"logging", "sunshower.texts", "sunshower.actors.output"}


class PrintedLines:
    """The lines that a process prints, from `install` on."""

    def __init__(self, worker: int, place: Callable[[int | None], Place]) -> None:
        """`place`: the task whose user code runs in the thread with this id."""
        self._worker, self._place = worker, place
        self._printed: deque[tuple[str, LogLine | None]] = deque(maxlen=_WAITING_MAX)
        self._unfinished: dict[tuple[str, int], str] = {}  # stream, thread → no newline yet
        self._counts: dict[str, int] = {}  # source → lines printed since the last `take`
        self._lock = threading.RLock()  # of _printed and _counts

    def install(self) -> None:
        """Note each line that Python code writes to the standard output and the standard error."""
        sys.stdout = PrintedStream("stdout", sys.stdout, self)
        sys.stderr = PrintedStream("stderr", sys.stderr, self)

    def note(self, stream: str, text: str) -> None:
        """Keep the complete lines of what the caller of the caller has written to `stream` until
        `take`. Any thread may call it. Lines of one traceback are kept together."""
        thread = threading.get_ident()
        before = self._unfinished.get((stream, thread), "")
        if "\n" not in text:
            self._unfinished[stream, thread] = (before + text)[-LINE_BYTES:]
            return
        *lines, self._unfinished[stream, thread] = (before + text).split("\n")
        frame = sys._getframe(2)
        is_trace = False
        while (module := frame.f_globals.get("__name__")) in _PRINTERS and frame.f_back is not None:
            is_trace, frame = is_trace or module == "traceback", frame.f_back
        if module in _NOT_USER_CODE:
            return
        source = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
        with self._lock:
            for line in lines:
                if line and not line.isspace():
                    self._keep(stream, source, line, is_trace, thread)

    def _keep(self, stream: str, source: str, text: str, is_trace: bool, thread: int) -> None:
        continues = is_trace and not text.startswith("Traceback ") and self._printed
        if continues and self._printed[-1][0] == source:
            if (last := self._printed[-1][1]) is not None:
                together = clip(f"{last.text}\n{without_secrets(text)}", LINE_BYTES)
                self._printed[-1] = source, replace(last, text=together)
            return
        self._counts[source] = count = self._counts.get(source, 0) + 1
        if count > _STORED_MAX:  # it is counted only
            self._printed.append((source, None))
            return
        component, task = self._place(thread) or ("", None)
        level = "info" if stream == "stdout" else "warning"
        text = clip(without_secrets(text), LINE_BYTES)
        line = LogLine(time.time(), level, "output", text, component, task, self._worker, stream)
        self._printed.append((source, line))

    def take(self) -> list[tuple[str, LogLine | None]]:
        """What was printed since the last call: source lines with their lines, the first five of
        each; None stands for a further one."""
        with self._lock:
            printed = [*self._printed]
            self._printed.clear()
            self._counts.clear()
        return printed


class PrintedStream:
    """A standard stream of a worker: what is written is noted, too, for the log of the topology."""

    def __init__(self, name: str, stream: TextIO, lines: PrintedLines) -> None:
        self._name, self._stream, self._lines = name, stream, lines

    def write(self, text: str) -> int:
        """As of the stream."""
        count = self._stream.write(text)
        try:  # noqa: SIM105 (suppress() is slower)
            self._lines.note(self._name, text)
        except Exception:  # noqa: S110 (a print of user code never fails by this)
            pass
        return count

    def writelines(self, lines: Iterable[str]) -> None:
        """As of the stream."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


# ---- watchdog ------------------------------------------------------------------------------------

# A thread that reports slow calls of user code, and kills the process if a call never returns.
#
# Ray restarts the process. Python cannot stop another thread, so there is no milder remedy. Code
# that never releases the interpreter's lock (a C extension; a regular expression that backtracks)
# blocks the watchdog, too.
#
# Time in which the process was stopped (SIGSTOP, a suspended machine) does not count.

SLOW_S = 10.0  # a call is reported after this time, and at each doubling of it
_LOOKS = 8  # checks within the shorter limit: an overrun is found at most an eighth late


class Slow(NamedTuple):
    """The report of a slow call."""

    task: int
    for_s: float
    stack: traceback.StackSummary

    @property
    def where(self) -> str:
        """The last line of the user: file, line, function, code; and where that waits."""
        return place_in(self.stack)


class SlowCalls:
    """Decides when to report a running call: after `first_s`, and at each doubling."""

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._call: Running | None = None
        self._due_s = first_s  # the duration at which the next report is due

    def is_due(self, call: Running | None, for_s: float) -> bool:
        """Whether to report `call`, which has lasted for `for_s`; true once for each due time."""
        if call != self._call:
            self._call, self._due_s = call, self._first_s
        if call is None or for_s < self._due_s:
            return False
        while self._due_s <= for_s:
            self._due_s *= 2
        return True


def start(
    recorder: Callable[[], Recorder],
    watched: threading.Thread,
    limit_s: float,
    report: Callable[[Slow], None],
    slow_s: float = SLOW_S,
) -> None:
    """Watch the thread that runs user code from now on, until the process ends.

    `recorder` returns the current flight recorder; a rebalance creates a new one. `report` is
    called for slow calls, on the watchdog's thread.
    """
    threading.Thread(
        target=_watch,
        args=(recorder, watched, limit_s, report, slow_s),
        name="watchdog",
        daemon=True,
    ).start()


def _watch(
    recorder: Callable[[], Recorder],
    watched: threading.Thread,
    limit_s: float,
    report: Callable[[Slow], None],
    slow_s: float,
) -> None:
    slow_calls, look_s = SlowCalls(slow_s), min(limit_s, slow_s) / _LOOKS
    looked_s, used_s, awake_s = time.monotonic(), time.process_time(), -math.inf
    while watched.is_alive():
        watched.join(look_s)
        now, used = time.monotonic(), time.process_time()
        if now - looked_s > 2 * limit_s / _LOOKS and used - used_s < (now - looked_s) / 2:
            awake_s = now  # it was stopped: the running call gets the whole limit from now
        call = recorder().running()
        for_s = 0.0 if call is None else now - max(call.since_s, awake_s)
        if call is not None and for_s >= limit_s:
            stack = _user_part(_stack_of(watched))
            recorder().note_stack("".join([*stack.format(), place_in(stack)]))
            os.kill(os.getpid(), signal.SIGKILL)
        if call is not None and slow_calls.is_due(call, for_s):
            report(Slow(call.task, for_s, _user_part(_stack_of(watched))))
        looked_s, used_s = now, used


def _user_part(stack: traceback.StackSummary) -> traceback.StackSummary:
    """The frames below that of a task; the whole stack if none is in it."""
    for at in range(len(stack) - 1, -1, -1):
        if stack[at].filename == TASK_FILE:
            return traceback.StackSummary.from_list(stack[at + 1 :])
    return stack


def _stack_of(thread: threading.Thread) -> traceback.StackSummary:
    return traceback.extract_stack(sys._current_frames().get(thread.ident or 0))


# ---- niceness ------------------------------------------------------------------------------------

# Gives a worker that is starting more CPU time than running workers.
#
# A crash is recovered once the new process has said hello, which takes 0.7 s of CPU, mostly
# imports. Its peers have a backlog meanwhile and use all CPU time: at 20,000 tuples/s on two cores
# the hello took 1.9 to 2.9 s, and the next kill came before the recovery. With this it takes 1.0
# to 1.2 s.

_STEP = 10  # a tenth of the weight; with 5, a third of it, the hello came after 1.4 to 2.5 s
_NICEST = 19
_THREADS = Path("/proc/self/task")


def step_back() -> None:
    """Raise the niceness of all present and future threads of this process, once it has started.

    Relative to its initial niceness, because only the superuser may lower a niceness.
    """
    if not _THREADS.exists():  # other systems have a niceness per process
        os.nice(_STEP)
        return
    for thread in map(int, os.listdir(_THREADS)):
        with contextlib.suppress(ProcessLookupError):  # a thread may have ended meanwhile
            nicer = min(os.getpriority(os.PRIO_PROCESS, thread) + _STEP, _NICEST)
            os.setpriority(os.PRIO_PROCESS, thread, nicer)


# ---- worker --------------------------------------------------------------------------------------


class WorkerActor(WorkerProcessBase):
    """One process with some tasks of a topology. Ray restarts it when it dies."""

    def __init__(self, run: str, worker: int) -> None:
        super().__init__(worker)
        end_with_ray()
        self._run = run
        self._store = RayStore(run)
        self._stopped = False
        self._sent_finished = False
        self._master = ray.get_actor(master_name(run), namespace=NAMESPACE)
        self._process = RayProcess(ray.get_runtime_context().get_node_id(), os.getpid())
        self._ends: dict[str, Future[None]] = {}  # of requests whose calls wait
        self._has_begun = threading.Event()  # cleared between hello and the start of the new life
        self._has_begun.set()
        self._sockets = PacketSockets(ray.util.get_node_ip_address(), self._deliver)
        self._sender: PacketSender | None = None  # of the present life
        self._recorder = Recorder()
        self._event_log: EventLogFolder | None = None  # if there is an event log
        self._entries: EventLogFile | None = None
        self._event_writer: EventWriter | None = None
        collect_seldom()
        self._log_capture = LogCapture(worker, self._running_in)
        self._log_capture.install()
        self._printed_lines = PrintedLines(worker, self._running_in)
        self._printed_lines.install()
        self._thread = threading.Thread(target=self._live, name="sunshower", daemon=True)
        self._thread.start()

    # ---- called by Ray, on the main thread, besides the methods of WorkerProcessBase ------------

    def endpoint(self) -> Endpoint:
        """Where this process receives packets."""
        return self._sockets.endpoint

    def reachable(self) -> None:
        """Return at once, as soon as calls reach this actor."""

    def report(self) -> None:
        silent(self._master.here).remote(self._worker, self._process)
        super().report()

    def results(self, component: str) -> list[Any]:
        """Called between two slices of work."""
        results: list[Any] = self._ask(partial(super().results, component))
        return cast("list[Any]", ShippedAnswer(results))

    def query(self, query: Query) -> list[tuple[Any, Any]]:
        """Called between two slices of work."""
        entries: list[tuple[Any, Any]] = self._ask(partial(super().query, query))
        return cast("list[tuple[Any, Any]]", ShippedAnswer(entries))

    def ask(
        self, name: str, requests: Sequence[Request], wait_s: float = 0.0
    ) -> list[Reply | RequestProgress]:
        """As of the base, but waits for the end of all requests, for up to `wait_s`. Called in the
        group REQUESTS, whose threads may wait."""
        ends = {request.id: Future[None]() for request in requests}
        self._ends |= ends  # before `ask`, so that none is missed
        replies = super().ask(name, requests)
        asked = [*zip(requests, replies, strict=True)]
        wait([ends[request.id] for request, reply in asked if type(reply) is not Reply], wait_s)
        for at, (request, reply) in enumerate(asked):
            self._ends.pop(request.id, None)
            if type(reply) is not Reply:
                replies[at] = self._replies.fetch(request.id)
        return cast("list[Reply | RequestProgress]", ShippedAnswer(replies))

    def reply(self, id: str, reply: Reply | RequestProgress, ends_s: float) -> None:
        super().reply(id, reply, ends_s)
        if type(reply) is Reply and (end := self._ends.pop(id, None)) is not None:
            end.set_result(None)

    def recorded(self, root: int | None) -> WorkerTraces:
        """`traces`, answered at once, also while user code runs."""
        return self.traces(root, time.time)

    def profile(self, id: str, seconds: float | None, in_process: bool = False) -> WorkerProfile:
        """See ProcessProfiler.profile; answered at once, also while user code runs."""
        return PROFILER.profile(id, seconds, in_process=in_process)

    def stop(self) -> list[TaskError]:
        """Close all tasks and end the loop. A second call does nothing.

        Returns the errors that tasks raised.
        """
        if self._stopped:
            return []
        if self._thread.is_alive():
            errors: list[TaskError] = self._ask(self.close, _CLOSE_S)
            return errors
        return [] if self.core is None else self.close()  # an error has ended the loop

    # ---- the port of WorkerProcessBase --------------------------------------------------------

    def wake(self) -> None:
        self._sockets.wake()

    def call_master(self, event: events.Event) -> None:
        # Ray would repeat old statistics to the next master, after newer ones.
        if type(event) is events.Statistics:
            self._master.apply.options(num_returns=0, max_task_retries=0).remote(event)
        else:
            silent(self._master.apply).remote(event)

    def equip(self, plan: Plan, life: int) -> Equipment:
        spouts = [spout.id for spout in plan.spouts if spout.worker == self._worker]
        reservations = self._retry_store(partial(RayReservationStore, self._run, spouts))
        self._recorder = flight_recorder.make(self._run, plan, self._worker, life)
        if self._recorder.unwritable is not None:
            _LOG.warning(
                "worker %d cannot write crash reports (%s): until it is started again, a record "
                "that kills its process uses up no attempt",
                self._worker,
                self._recorder.unwritable,
            )
        generator, clock = seeded(secrets.randbits(128)), SystemClock()
        event_writer = self._new_event_writer(life, clock)
        wake = partial(self.put, _nothing)  # `work` looks at the mailbox before it waits
        return Equipment(generator, clock, self._recorder, reservations, event_writer, clock, wake)

    def machine(self) -> tuple[str, float, int] | None:
        try:
            with open("/proc/stat", encoding="ascii") as file:
                user, nice, system, _, _, irq, softirq, steal = map(
                    int, file.readline().split()[1:9]
                )
        except (OSError, ValueError):  # not Linux
            return None
        busy = user + nice + system + irq + softirq + steal
        return os.uname().nodename, busy / os.sysconf("SC_CLK_TCK"), os.cpu_count() or 1

    def thread(self) -> tuple[float, float] | None:
        try:
            with open("/proc/thread-self/schedstat", encoding="ascii") as file:
                ran_ns, waited_ns, _ = map(int, file.read().split())
        except (OSError, ValueError):  # not Linux, or a kernel without these numbers
            return None
        return ran_ns / 1e9, waited_ns / 1e9

    def load_plan(self, number: int) -> Plan:
        plan = self._retry_store(partial(self._store.load_plan, number))
        self._transfers = RayTransferStore(self._run, plan)
        return plan

    def load_transfer(self, move: int, task: Task) -> TaskTransfer | None:
        return self._retry_store(partial(self._transfers.load, move, task))

    def save_transfer(self, move: int, task: Task, transfer: TaskTransfer, keeping: bool) -> None:
        self._retry_store(partial(self._transfers.save, move, task, transfer, keeping))

    def log(self, line: str) -> None:
        _FAILURES.warning("%s", line)

    def close(self) -> list[TaskError]:
        self._stopped = True
        errors = super().close()
        flight_recorder.remove(self._run, self._worker)
        return errors

    def _deliver(self, packet: bytes) -> int | None:
        """Receive a packet of a peer. The answer says whether it will be processed; there is none
        before this life has begun, because the sender may know of it before."""
        if not self._thread.is_alive():
            return int(Answer.STALE)
        return int(self.accept(packet)) if self._has_begun.is_set() else None

    # ---- the loop, on its own thread ------------------------------------------------------

    def _live(self) -> None:
        try:
            who = f"worker {self._worker} on node {self._process.node}"
            self._retry_store(partial(self._store.check_version, who))
            former = ray.get(self._master.place_of.remote(self._worker))
            if former is not None:
                crash_report = flight_recorder.find_on(former[0], self._run, self._worker)
            else:  # the first life, or a master that does not know the former one
                crash_report = flight_recorder.find(self._run, self._worker)
            number = self._retry_store(self._store.plan_in_force)
            key = self._retry_store(self._store.packet_key)
            self._event_log = self._retry_store(partial(event_log_files.find, self._run))
            self.start(self.load_plan(number), crash_report, number)
            self._sockets.trust(key, self.plan.graph.config.worker_timeout_s / 2)
            self._greet()
            step_back()
            threading.Thread(target=self._beat, name="heartbeats", daemon=True).start()
            config = self.plan.graph.config
            start(
                lambda: self._recorder,
                threading.current_thread(),
                config.block_max_s,
                self._report_slow,
            )
            self._loop(config.internals.slice_s)
        except SunshowerError as error:
            self.call_master(events.Broken(self._worker, self.life, without_secrets(str(error))))
        except BaseException:
            why = (
                f"worker {self._worker} hit a defect of sunshower itself; please report this:\n"
                + without_secrets(traceback.format_exc())
            )
            self.call_master(events.Broken(self._worker, self.life, why))

    def _beat(self) -> None:
        """Send heartbeats to the master, on a thread of their own, until the process ends."""
        lease, call, sent_s, life = self.lease, None, 0.0, 0
        stats_s = time.monotonic()
        while True:
            now = time.monotonic()
            self.tick(now)
            if now - stats_s > _STATS_AGAIN_S:
                stats_s = now
                self.put(self._forget_stats)
            if lines := self._log_capture.take(now, time.time(), self._printed_lines.take()):
                self.call_master(events.Logged(self._worker, self.life, lines))
            if call is None or now - sent_s > 5 * lease.beat_s:  # the answer may have been lost
                sent_s, life = now, self.life
                beat = events.Beat(self._worker, life)
                call = self._master.apply.options(max_task_retries=0).remote(beat)
            if ray.wait([call], timeout=lease.beat_s / 2)[0]:
                try:
                    answer = ray.get(call)
                except ray.exceptions.RayError:
                    answer = None  # the master has died; the next one is starting
                call = None
                if self.beat_answered(life, sent_s, answer, time.monotonic()):
                    _LOG.warning("worker %d was replaced, because it was silent", self._worker)
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(lease.beat_s / 2)

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

    def _greet(self) -> None:
        """Say hello to the master, and begin the new life."""
        self.begin(*self._retry_store(self._say_hello))
        if self._sender is not None:
            self._sender.close()
        self._sender = PacketSender(self._run, self._core, self._sockets, self.put)
        self._has_begun.set()
        self._sockets.resume()

    def _say_hello(self) -> tuple[Welcome, float]:
        """Say hello to the master, but not before calls reach this actor. Returns the answer, and
        when the hello was sent.

        A call to an actor that Ray is still starting fails 0.3 to 0.7 s later, and the peer link to
        it pauses for `peer_link_retry_s`. (With a kill every 2 s: a third of the replays.)
        """
        self._has_begun.set()  # from an earlier attempt
        me = ray.get_runtime_context().current_actor
        ray.get(me.reachable.options(max_task_retries=-1).remote())
        self._has_begun.clear()
        hello_s = time.monotonic()
        hello = self._master.hello.remote(self._worker, self._process, self._crash_report)
        return ray.get(hello), hello_s

    def _new_event_writer(self, life: int, clock: SystemClock) -> EventWriter | None:
        if self._event_log is None:
            return None
        former, self._entries = self._entries, EventLogFile(self._event_log, self._worker, life)
        put, sample = self._entries.put, self._event_log.sample
        if self._event_writer is None:
            self._event_writer = EventWriter(clock, put, sample)
        else:  # user code that stays has kept its context, which uses the writer
            self._event_writer.write_to(put)
        if former is not None:
            former.close()
        return self._event_writer

    def _running_in(self, thread: int | None) -> Place:
        """The task whose user code runs in this thread."""
        running = self._recorder.running() if thread == self._thread.ident else None
        if running is None:
            return None
        tasks = (task for task in self.plan.tasks if task.id == running.task)
        return next(((task.component, task.index) for task in tasks), None)

    def _report_slow(self, slow: Slow) -> None:
        """Log a slow call and report it to the master. Runs on the watchdog's thread."""
        names = (task.name for task in self.plan.tasks if task.id == slow.task)
        _LOG.warning(
            "%s has been in one call for %.0f s; after %g s (block_max_s) its process is ended "
            "and started again. It is in %s\n%s",
            next(names, f"task {slow.task}"),  # a rebalance may just have ended it
            slow.for_s,
            self.plan.graph.config.block_max_s,
            slow.where,
            "".join(slow.stack.format()),
        )
        place = self._worker, self.life
        self.call_master(events.Stuck(*place, slow.task, slow.for_s, slow.where))

    def _loop(self, slice_s: float) -> None:
        sent_s = stepped_s = due_s = 0.0
        wait_s: float | None = 0.0
        while not self._stopped:
            self._sockets.work(wait_s, self.mailbox)
            now = time.monotonic()
            if not self.lease.holds(now):
                self._sockets.work(_TURN_S)
                wait_s = due_s = 0.0
                continue
            if not self.mailbox and now < min(due_s, stepped_s + _TURN_S):
                # Only answers came. They make no work, but may let a packet leave, and they change
                # what is to be reported, such as that the worker is idle.
                due_s = min(due_s, stepped_s + _TURN_S)
                wait_s = _sooner(self._send(now), due_s - now)
                continue
            self.read_mail()
            if self.greeting:
                self._greet()
            if self._core.open_tasks():  # reported before their first call, which may not return
                self.send_stats(now)
            wait_s = self._core.step()
            stepped_s = now = time.monotonic()
            if wait_s != 0 or now - sent_s >= slice_s or self._core.has_slack:
                sent_s = now
                if self._entries is not None:
                    self._entries.check()
                late_s = self._send(now)
                wait_s = _sooner(late_s, self._report(now, wait_s))
            due_s = math.inf if wait_s is None else now + wait_s

    def _send(self, now: float) -> float | None:
        assert self._sender is not None, "_greet comes first"
        return self._sender.send(now)

    def _report(self, now: float, wait_s: float | None) -> float | None:
        """Send changed statistics to the master, if they are due. Returns the longest wait."""
        finished = self._core.finished
        turned = finished is not self._sent_finished
        due_s = self._stats_due_s - (STATS_S - _TURN_S if turned else 0.0)
        if now < due_s:
            return _sooner(wait_s, due_s - now)
        if self.send_stats(now, _STATS_DELAY_S):
            return _sooner(wait_s, _STATS_DELAY_S)
        self._sent_finished = finished
        return wait_s

    def _ask(self, question: Callable[[], Any], within_s: float = _ANSWER_S) -> Any:
        """Call `question` on the loop's thread; its errors are raised here. Raises ClusterError if
        the loop is busy, before the caller's own timeout, which would not give the reason."""
        answer: Future[Any] = Future()

        def fact() -> None:
            try:
                answer.set_result(question())
            except user_errors() as error:
                answer.set_exception(error)

        self.put(fact)
        try:
            return answer.result(timeout=within_s)
        except TimeoutError:
            raise ClusterError(
                f"worker {self._worker} of {topology_of(self._run)!r} has not come to an answer "
                f"for {within_s:g} s: a call of user code takes that long; ask again later"
            ) from None


def _nothing() -> None:
    """A call in the mailbox that only ends the wait of the loop."""


def _sooner(one_s: float | None, other_s: float | None) -> float | None:
    """The shorter of two waits; None means no limit."""
    return min((wait_s for wait_s in (one_s, other_s) if wait_s is not None), default=None)


class SunshowerWorker(WorkerActor):
    """The class that a client sends to Ray. For that Ray disassembles all methods that the class
    itself has, which would take the client 0.1 s; it does not those of the base class."""


WorkerClass = ray.remote(
    max_restarts=-1, max_task_retries=0, concurrency_groups={REQUESTS: _REQUEST_THREADS}
)(SunshowerWorker)
