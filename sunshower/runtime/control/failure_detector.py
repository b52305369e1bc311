"""Detects silent workers by their heartbeats, counts restarts, and tries failed tasks again.

`FailureDetector` finds silent workers, which the master replaces; `RestartTracker` quarantines a
task whose process dies again and again, and `Probations` decides when it is tried again.

The tuples of a worker that died or was replaced are failed in tasks/report_router.py.

A thread of each worker sends heartbeats, so a worker that is busy still beats; one that is stopped,
cut off from the master, or whose user code holds the interpreter's lock does not.

    heard ──silent for `worker_timeout_s`──▶ fenced, replaced ──hello of the next life──▶ heard
                                              │         ▲
                                              └─no hello┘  after 60 s, then twice as long …

A worker works only while its lease holds, which is shorter than the timeout. So it stops before the
master replaces it, and continues when a heartbeat is answered, with deadlines that are later by
that time; a worker that was replaced ends itself then. All clocks are local: the lease counts from
the sending of a heartbeat, the silence from its arrival.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from math import inf

from sunshower.config import Config
from sunshower.runtime.events.health import Quarantine, Standing, TaskError
from sunshower.runtime.events.metrics import TaskStats, WorkerStats
from sunshower.runtime.plan import ACKER, Plan, Task
from sunshower.runtime.tasks.flight_recorder import CrashReport
from sunshower.runtime.tasks.supervision import backoff
from sunshower.runtime.transport.peer_link import SUSPECT

_BEAT = 0.1  # parts of worker_timeout_s: the interval of heartbeats,
_STOPPED = 0.15  # a time without a tick that shows that the process was stopped,
_LEASE = 0.75  # and the validity of an answered heartbeat
_LATE_S = 3.0  # the master looks every second
_START_S, _START_MAX_S = 60.0, 600.0  # for a new process to say hello
_CREATE_S, _CREATE_MAX_S = 1.0, 30.0  # between attempts to create one


class Lease:
    """A worker's permission to work. Heartbeats run on a thread of their own: every attribute is
    one value, which is replaced as a whole."""

    def __init__(self, timeout_s: float) -> None:
        self.beat_s = timeout_s * _BEAT
        self.renewed_s = inf  # when the last heartbeat was sent that was answered; ∞: not judged
        self.ticked_s = inf  # when the thread of the heartbeats ran last; likewise
        self.awake_s = -inf  # when deadlines were last moved by a time without work
        self._lasts_s = timeout_s * _LEASE
        self._stopped_s = timeout_s * _STOPPED

    def holds(self, now: float) -> bool:
        """Whether the worker may work. Checked before the mailbox is read."""
        return now - self.renewed_s < self._lasts_s and not self.stopped_for(now)

    def stopped_for(self, now: float) -> float:
        """How long the whole process has just been stopped; 0.0 if it was not."""
        stopped_s = now - self.ticked_s
        return stopped_s if stopped_s > self._stopped_s else 0.0

    def lapsed_for(self, now: float) -> float:
        """How long the worker has not worked because the lease did not hold, although its process
        ran: the master was away, or not reached."""
        return max(0.0, now - max(self.renewed_s + self._lasts_s, self.awake_s))


class FailureDetector:
    """The master's part; kept by one life of the master."""

    def __init__(self, timeout_s: float, now: float, fenced: Iterable[int] = ()) -> None:
        """`fenced`: workers that a former master has ended, and maybe not created again."""
        self._timeout_s = timeout_s
        self._looked_s = now
        self._heard_s: dict[int, float] = {}
        # worker whose process has not said hello → when it was started, and how often
        self._started: dict[int, tuple[float, int]] = {}
        # likewise → when to try to create it, and how often
        self._create: dict[int, tuple[float, int]] = dict.fromkeys(fenced, (now, 0))

    def heard(self, worker: int, now: float) -> None:
        """A worker has sent a heartbeat, or has said hello."""
        self._heard_s[worker] = now
        self._started.pop(worker, None)
        self._create.pop(worker, None)

    def look(self, workers: Iterable[int], known: Container[int], now: float) -> list[int]:
        """Return the workers to replace now. `known`: those that have said hello."""
        stopped_s = now - self._looked_s
        if stopped_s > max(_STOPPED * self._timeout_s, _LATE_S):  # what they sent is waiting
            self._heard_s = {
                worker: min(at_s + stopped_s, now) for worker, at_s in self._heard_s.items()
            }
        self._looked_s = now
        self._heard_s = {worker: self._heard_s.get(worker, now) for worker in workers}
        silent = []
        for worker in workers:
            if worker not in known:
                self._started.setdefault(worker, (now, 1))
            if self._is_due(worker, now):
                self._started[worker] = now, self._started.get(worker, (now, 0))[1] + 1
                self._create[worker] = now, 0
                silent.append(worker)
        return silent

    def to_create(self) -> list[int]:
        """The replaced workers of which to create a process, unless there is one: the first one
        may have failed at its start."""
        now = self._looked_s
        due = [worker for worker, (due_s, _) in self._create.items() if due_s <= now]
        for worker in due:
            count = self._create[worker][1] + 1
            self._create[worker] = now + backoff(_CREATE_S, count, _CREATE_MAX_S), count
        return due

    def silent(self) -> dict[int, float]:
        """Worker → how long it has been silent; also those of which no process has begun yet."""
        since = {worker: self._looked_s - at_s for worker, at_s in self._heard_s.items()}
        return {
            worker: for_s for worker, for_s in since.items() if for_s >= SUSPECT * self._timeout_s
        }

    def _is_due(self, worker: int, now: float) -> bool:
        if worker not in self._started:
            return now - self._heard_s[worker] >= self._timeout_s
        at_s, count = self._started[worker]
        return now - at_s >= backoff(max(_START_S, self._timeout_s), count, _START_MAX_S)


# ---- restart tracker -----------------------------------------------------------------------------
# Delays the restarts of workers with short lives, and quarantines tasks that cause them.
#
# A life is short if it ended within 5 s. After two short lives in a row the next one is delayed,
# twice as long each time. A short life counts against a task if it ended while that task's user
# code ran (by the crash report; without one, against all tasks of the worker that run user code)
# and before the task had finished anything. `deaths_max` such deaths in a row quarantine the task.
#
# The last condition keeps random SIGKILLs from quarantining a task. With 8 workers and a kill
# every 2 s, every fourth life is short, and six in a row occur once in 80 minutes (simulated). But
# a life ends before anything is finished, within the first second, with p = 1/16: six such lives
# in a row occur once in a year (30 deaths a minute × (1/16)⁶ = 1.8e-6 a minute).
#
# A quarantined task is tried again after 30 s, and after twice as long for each further death, up
# to 10 minutes; without limit. It has recovered once it has run for 30 s without interruption and
# has executed or emitted something in that process. Waits of a task whose process stays alive are
# in supervision.py.

_SHORT_S = 5.0
_AT_ONCE = 2  # short lives in a row that cause no delay yet
_BACKOFF_MAX_S = 8.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 30.0, 600.0  # of a quarantined task
_RECOVERED_S = 30.0


class RestartTracker:
    """Kept by one life of the master; a life whose start it has not seen counts as long."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._config: Config = plan.graph.config
        self._began_s: dict[int, float] = {}  # worker → when its tasks were opened
        self._short: defaultdict[int, int] = defaultdict(int)  # worker → short lives in a row
        self._against: defaultdict[int, int] = defaultdict(int)  # task → deaths in a row

    def died(
        self, worker: int, now: float, last: WorkerStats | None, crash_report: CrashReport | None
    ) -> dict[int, TaskError]:
        """A worker died at `now` or before; `last`: its last statistics of that life.

        Returns the tasks to quarantine, and why.
        """
        life_s = now - self._began_s.get(worker, -inf)
        is_short = life_s < _SHORT_S
        self._short[worker] = self._short[worker] + 1 if is_short else 0
        if life_s < 0:  # its tasks were still delayed: they did not cause the death
            return {}
        suspects = self._suspects(worker, last, crash_report) if is_short else set()
        quarantined: dict[int, TaskError] = {}
        for task in self._plan.tasks_on(worker):
            self._against[task.id] = self._against[task.id] + 1 if task.id in suspects else 0
            if self._against[task.id] >= self._config.deaths_max:
                quarantined[task.id] = self._error_of(task, crash_report)
        return quarantined

    def began(self, worker: int, now: float) -> float:
        """Note a new life. Returns the delay of its tasks, in seconds."""
        over = self._short[worker] - _AT_ONCE
        delay_s = backoff(self._config.internals.restart_backoff_s, over, _BACKOFF_MAX_S)
        self._began_s[worker] = now + delay_s
        return delay_s

    def _suspects(
        self, worker: int, last: WorkerStats | None, crash_report: CrashReport | None
    ) -> set[int]:
        if crash_report is None:
            suspects = {t.id for t in self._plan.tasks_on(worker) if t.component != ACKER}
        else:
            suspects = set() if crash_report.task is None else {crash_report.task}
        counts = {task.task: task.counts for task in last.tasks} if last else {}
        return {
            t for t in suspects if not (t in counts and (counts[t].executed or counts[t].emitted))
        }

    def _error_of(self, task: Task, crash_report: CrashReport | None) -> TaskError:
        doing = "while it was running" if crash_report else "before it had finished anything"
        text = (
            f"{task.component}[{task.index}] is not run any more: the process of its worker died "
            f"{self._against[task.id]} times in a row, each time within {_SHORT_S:g} s, {doing}. "
            "Look for what ends it there: os._exit, a crash of native code, too little memory"
        )
        stack = crash_report.stack if crash_report else ""
        return TaskError(task.component, task.index, task.worker, text, traceback=stack)


class Probations:
    """Kept by one life of the master: the next one begins with the shortest wait again."""

    def __init__(self) -> None:
        self._failed: dict[int, int] = {}  # task → probations that its process did not survive
        self._runs_since_s: dict[int, float] = {}  # task → when it was first reported running

    def of(self, task: int, why: TaskError) -> Quarantine:
        """The quarantine of a task, with its wait from the hello of its worker."""
        failed = self._failed.get(task, 0)
        return Quarantine(why, backoff(_FIRST_WAIT_S, 1 + failed, _LONGEST_WAIT_S))

    def has_recovered(self, task: TaskStats, now: float) -> bool:
        """Whether a quarantined task counts as healthy, by the last statistics of its worker."""
        if task.health.standing is not Standing.RUNNING:
            self._runs_since_s.pop(task.task, None)
            return False
        since_s = self._runs_since_s.setdefault(task.task, now)
        if now - since_s < _RECOVERED_S or not (task.counts.executed or task.counts.emitted):
            return False
        self._runs_since_s.pop(task.task)
        self._failed.pop(task.task, None)
        return True

    def died(self, tasks: Iterable[int], crash_report: CrashReport | None) -> None:
        """The process of these quarantined tasks died. With a crash report, the task whose code ran
        has failed its probation; without one, all tasks that were reported running."""
        for task in tasks:
            ran = self._runs_since_s.pop(task, None) is not None
            if ran if crash_report is None else crash_report.task == task:
                self._failed[task] = self._failed.get(task, 0) + 1
