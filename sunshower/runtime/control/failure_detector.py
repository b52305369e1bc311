"""Detects silent workers by their heartbeats; the master replaces them.

The tuples of a worker that died or was replaced are failed in tracking/loss_detector.py.

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

from collections.abc import Container, Iterable
from math import inf

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
            self._heard_s = {one: min(at_s + stopped_s, now) for one, at_s in self._heard_s.items()}
        self._looked_s = now
        self._heard_s = {one: self._heard_s.get(one, now) for one in workers}
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
        return {one: for_s for one, for_s in since.items() if for_s >= SUSPECT * self._timeout_s}

    def _is_due(self, worker: int, now: float) -> bool:
        if worker not in self._started:
            return now - self._heard_s[worker] >= self._timeout_s
        at_s, count = self._started[worker]
        return now - at_s >= backoff(max(_START_S, self._timeout_s), count, _START_MAX_S)
