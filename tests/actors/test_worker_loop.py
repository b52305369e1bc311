"""The loop of a worker goes on by itself when something has changed that is to be reported."""

from __future__ import annotations

import math
from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sunshower.actors import worker as worker_module
from sunshower.actors.worker import WorkerActor
from sunshower.clock import ManualClock
from sunshower.runtime.control import events
from sunshower.runtime.events.metrics import WorkerStats

_LONG_S = 1.0


class Lease:
    def holds(self, now: float) -> bool:
        return True


class Core:
    """Has sent its last packet, and waits for the answer."""

    has_slack = has_opened = False
    idle = False

    @property
    def finished(self) -> bool:
        return self.idle

    def step(self) -> float | None:
        return None

    def look_at_links(self) -> None: ...

    def notices(self) -> list[str]:
        return []

    def pulse(self) -> tuple[object, ...]:
        return (self.idle,)

    def stats(self) -> WorkerStats:
        return WorkerStats(0, 0, idle=self.idle)


class HangingCore(Core):
    """Opens its tasks in the first step, and never returns from the second one."""

    def step(self) -> float | None:
        if self.has_opened:
            raise KeyboardInterrupt
        self.has_opened = True
        return 0.0


class Looping(WorkerActor):
    """A worker without Ray, which is its own sockets."""

    def __init__(self, clock: ManualClock, core: Core) -> None:
        self._time = clock
        self._core_here = core
        self.core = cast("Any", self._core_here)
        self.lease, self._sockets, self._sender = cast("Any", (Lease(), self, self))
        self.mailbox, self.greeting, self._stopped = deque(), False, False
        self._entries, self._sent_finished = None, False
        self._last_pulse, self._changed_s, self._stats_due_s = None, math.inf, 0.0
        self.sent: list[bool] = []

    def work(self, wait_s: float | None, mail: object = ()) -> None:
        """The answer comes after the statistics."""
        if len(self.sent) == 1 and not self._core_here.idle:
            self._core_here.idle = True
            return
        self._stopped = len(self.sent) == 2 or wait_s is None or wait_s > _LONG_S
        if not self._stopped:
            self._time.advance(wait_s or 0.001)

    def send(self, now: float) -> None:
        """There is nothing to send."""

    def call_master(self, event: events.Event) -> None:
        assert isinstance(event, events.Statistics)
        self.sent.append(event.stats.idle)


def test_the_answer_to_the_last_packet_is_reported_without_a_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(worker_module, "time", SimpleNamespace(monotonic=clock.now))
    worker = Looping(clock, Core())
    worker._loop(0.01)
    assert worker.sent == [False, True]


def test_tasks_that_opened_are_reported_before_a_first_call_that_does_not_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(worker_module, "time", SimpleNamespace(monotonic=clock.now))
    worker = Looping(clock, HangingCore())
    with pytest.raises(KeyboardInterrupt):
        worker._loop(0.01)
    assert worker.sent == [False]
