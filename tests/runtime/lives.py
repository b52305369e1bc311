"""A topology in one worker that dies and restarts, with its master; tests step it by hand.

A restart keeps only the state of the master, and `box`, the flight recorder of the worker. With
`marks` there are emit reservations, as on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable

from sunshower import Topology
from sunshower.clock import ManualClock
from sunshower.runtime.control import events
from sunshower.runtime.control.master import Master
from sunshower.runtime.events.metrics import TaskStats
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.tasks.flight_recorder import FlightRecorder, read
from sunshower.runtime.tasks.spouts.source import ReservationStore
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.worker import Worker


class RestartedWorker:
    """`core` is the present life of the worker."""

    def __init__(self, topology: Topology, marks: ReservationStore | None = None) -> None:
        self.clock = ManualClock()
        self.plan = make_plan(topology.graph(), Layout.PACK)
        self.master = Master(self.plan)
        self.box = bytearray()
        self.marks = marks
        self.start()

    def start(self, *, box_survives: bool = True) -> None:
        """The worker says hello, for the first time or after a SIGKILL."""
        crash_report = read(self.box, 0) if box_survives else None
        welcome = self.master.apply(events.Hello(0, crash_report), self.clock.now()).answer
        self.box = bytearray(FlightRecorder.size_of(self.plan, 0))
        box = FlightRecorder(self.box, welcome.life)
        self.core = Worker(
            self.plan,
            0,
            welcome.life,
            seeded(1),
            self.clock,
            recorder=box,
            delay_s=welcome.delay_s,
            quarantined=welcome.quarantined,
            reservations=self.marks,
        )
        self.core.welcome(welcome, crash_report)
        self.clock.advance(welcome.delay_s)

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Work until there is nothing to do, or until something has happened."""
        while not until() and self.core.step() == 0:
            pass

    def tell(self) -> TaskStats:
        """Send the statistics of the worker to the master. Returns those of the spout."""
        stats = self.core.stats()
        self.master.apply(events.Statistics(stats), self.clock.now())
        return stats.tasks[0]

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
