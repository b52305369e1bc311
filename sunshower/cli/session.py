"""One topology from start to end in front of somebody: Ray, the display, and Ctrl-C."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType

from sunshower.actors.cluster import RayCluster
from sunshower.actors.output import WorkerOutput, without_news, worker_output
from sunshower.actors.run import RayRun
from sunshower.actors.shipping import ship
from sunshower.actors.stopping import close, kill
from sunshower.cli.display import Display, duration
from sunshower.cli.interrupts import Interrupts
from sunshower.cli.screen import Screen, bad_news
from sunshower.cli.waits import unreached, wait_lines
from sunshower.errors import ClusterError, SunshowerError, TopologyFailed
from sunshower.runtime.lifecycle import State
from sunshower.runtime.metrics import Snapshot
from sunshower.runtime.plan import Layout
from sunshower.topologies.graph import Graph

_LOOK_EVERY_S = 0.1
_CONNECT_S = 5.0


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    snapshot: Snapshot  # the last one
    seconds: float  # from the moment when all workers were there
    drained: bool  # by somebody's wish, before the spouts were exhausted


class Session:
    """Runs a topology on Ray and shows it on `screen`."""

    def __init__(self, screen: Screen, address: str | None = None) -> None:
        self._screen = screen
        self._address = address
        self._interrupts = Interrupts()

    def run(
        self,
        graph: Graph,
        layout: Layout,
        modules: Iterable[ModuleType] = (),
        *,
        look: Callable[[RayRun, Snapshot], None] | None = None,
        ended: Callable[[RayRun], None] | None = None,
    ) -> Ended:
        """Run until the spouts are exhausted or somebody interrupts; leave nothing running.

        `look` is called with each snapshot, `ended` when all is processed and the workers still
        live. Raises KeyboardInterrupt when somebody insists on an end, BrokenPipeError when nobody
        reads the output any more.
        """
        screen = self._screen
        with self._interrupts as interrupts, screen, without_news():
            if self._address:
                screen.doing(f"Looking for Ray at {self._address} …")
                check_address(self._address)
            else:
                screen.doing("Starting Ray …")
            cluster = RayCluster(self._address, quiet=False)
            try:
                with worker_output(screen.hear) as output:
                    ship(modules)
                    screen.doing(f"Starting the workers of {graph.id} ({layout}) …")
                    run = cluster.submit(graph, layout)
                    try:
                        interrupts.be_patient()
                        result = self._watch(run, look)
                        if ended:
                            ended(run)
                        self._part(run, output)
                    except SunshowerError:
                        self._part(run, output)
                        raise
                    except BaseException:
                        screen.say("Stopping at once: what is under way will not be finished.")
                        kill(run)
                        raise
            finally:
                cluster.close()
        return result

    def _part(self, run: RayRun, output: WorkerOutput) -> None:
        self._screen.doing("Stopping the workers …")
        for error in close(run):
            self._screen.say(bad_news(str(error)))
        output.catch_up(run)

    def _watch(self, run: RayRun, look: Callable[[RayRun, Snapshot], None] | None) -> Ended:
        display = Display(run.plan.graph)
        start_s = time.monotonic()
        draining = False
        while True:
            snapshot = run.snapshot()
            now = time.monotonic()
            display.see(snapshot, now)
            for line in display.news(snapshot, now):
                self._screen.say(bad_news(line))
            self._screen.show(display, snapshot, _title(run, snapshot, now - start_s))
            if look:
                look(run, snapshot)
            if snapshot.state == State.FINISHED:
                return Ended(snapshot, now - start_s, draining)
            if why := unreached(snapshot):
                raise TopologyFailed(why)
            if self._screen.closed.is_set():
                raise BrokenPipeError(errno.EPIPE, "nobody reads the standard output any more")
            if self._interrupts.asked and not draining:
                draining = True
                for line in wait_lines(snapshot.waiting()):
                    self._screen.say(bad_news(line))
                self._screen.say(
                    "Draining: what is under way will be finished. Interrupt again to stop at once."
                )
                run.drain()
            self._interrupts.wait(_LOOK_EVERY_S)


def check_address(address: str) -> None:
    """Raise ClusterError unless somebody listens there: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # "auto" and the like
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray answers at {address}: {error}. Start one with `ray start --head`, which says "
            "its address, or leave --address away"
        ) from error


def _title(run: RayRun, snapshot: Snapshot, seconds: float) -> str:
    workers = len(run.plan.workers)
    parts = [
        run.plan.graph.id,
        str(run.plan.layout),
        f"{workers} worker{'s'[: workers != 1]}",
        duration(seconds),
    ]
    if snapshot.restarts:
        parts.append(f"restarts: {snapshot.restarts}")
    return "  ·  ".join(parts)
