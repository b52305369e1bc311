"""Runs a topology from start to end, on Ray or in this process, with a display and Ctrl-C."""

from __future__ import annotations

import bdb
import errno
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sunshower.cli.cluster_options import check_address, node_news
from sunshower.cli.display import Screen, red
from sunshower.cli.formatting import duration, number_of
from sunshower.errors import EndsProcess, SunshowerError, TopologyFailed
from sunshower.experiments.runner.interrupts import Interrupts
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.topologies.graph import Graph

if TYPE_CHECKING:  # imported while Ray starts, as what the functions below import
    from sunshower.actors.output import WorkerOutput
    from sunshower.actors.run import RayRun
    from sunshower.cli.display import RunResult
    from sunshower.cli.ui.page import RunPage
    from sunshower.runtime.events.health import TaskError
    from sunshower.runtime.events.metrics import Snapshot

_LOOK_EVERY_S = 0.1
_BLOCKED_S = 10.0  # so long a draining run waits for a spout that is blocked in user code


class WatchedRun(Protocol):
    """What a session watches: a RayRun or an InlineTopology."""

    @property
    def plan(self) -> Plan: ...
    def snapshot(self) -> Snapshot: ...
    def drain(self) -> None: ...
    def close_tasks(self) -> list[TaskError]: ...


R = TypeVar("R", bound=WatchedRun)


class TopologySession:
    """Runs a topology on Ray, or in this process, and shows it on `screen`."""

    def __init__(self, screen: Screen, address: str | None = None) -> None:
        self._screen = screen
        self._address = address
        self._interrupts = Interrupts()

    def run_inline(self, graph: Graph, page: RunPage | None = None) -> RunResult:
        """The same in this thread, where a debugger can stop."""
        from sunshower.runtime.garbage import collect_seldom
        from sunshower.runtime.inline import InlineTopology

        with (
            self._interrupts as interrupts,
            self._screen,
            _debuggers_quit(),
            InlineTopology(graph) as run,
        ):
            collect_seldom()
            interrupts.defer()
            try:
                return self._watch(run, [page.look_inline] if page else [], run.work)
            except KeyboardInterrupt:
                self._screen.say("Stopping at once: pending tuples are not finished.")
                raise
            finally:
                if page:
                    page.closing(run)
                self._report(run.close_tasks())

    def run(
        self,
        graph: Graph,
        layout: Layout,
        modules: Iterable[ModuleType] = (),
        *,
        look: Callable[[RayRun, Snapshot], None] | None = None,
        ended: Callable[[RayRun], None] | None = None,
        page: RunPage | None = None,
    ) -> RunResult:
        """Run until the spouts are exhausted or the user interrupts; leave nothing running.

        `look` is called with each snapshot, `ended` when all is processed and the workers still
        run. `page` shows the run. Raises KeyboardInterrupt at the second interrupt, and
        BrokenPipeError when the reader of standard output is gone.
        """
        from sunshower.actors.cluster import RayCluster
        from sunshower.actors.starting import without_news

        screen = self._screen
        with self._interrupts as interrupts, screen, without_news():
            if self._address:
                screen.doing(f"Looking for Ray at {self._address} …")
                check_address(self._address)
            else:
                screen.doing("Starting Ray: its head, and a node on this machine …")
            cluster = RayCluster(self._address, quiet=False)
            try:
                from sunshower.actors.output import with_delimited_lines, worker_output
                from sunshower.actors.shipping import ship

                with worker_output(screen.print_output) as output:
                    ship(modules)
                    screen.doing(f"Starting the workers of {graph.id} ({layout}) …")
                    delimited = with_delimited_lines(graph)
                    run = cluster.submit(delimited, layout, look=self._start_news(graph, layout))
                    try:
                        interrupts.defer()
                        looks = [each for each in (look, page and page.look) if each]
                        result = self._watch(run, looks, interrupts.wait)
                        if ended:
                            ended(run)
                        self._close(run, output, page)
                    except SunshowerError:
                        self._close(run, output, page)
                        raise
                    except BaseException:
                        screen.say("Stopping at once: pending tuples are not finished.")
                        run.kill_actors()
                        raise
            finally:
                cluster.close()
        return result

    def _start_news(self, graph: Graph, layout: Layout) -> Callable[[Snapshot], None]:
        """Return a function that shows what the start waits for, whenever that changes."""
        of_nodes, count = node_news(self._screen.console), len(make_plan(graph, layout).workers)
        shown: list[int] = []

        def look(snapshot: Snapshot) -> None:
            of_nodes(snapshot)
            if shown != [joined := len(snapshot.workers)] and joined < count:
                shown[:] = [joined]
                self._screen.doing(f"Waiting for processes: {joined} of {count} workers run …")

        return look

    def _close(self, run: RayRun, output: WorkerOutput, page: RunPage | None) -> None:
        if page:
            page.closing(run)
        self._screen.doing("Stopping the workers …")
        self._report(run.close_tasks())
        output.catch_up(run)

    def _report(self, errors: Iterable[TaskError]) -> None:
        for error in errors:
            self._screen.say(red(str(error)))

    def _watch(
        self,
        run: R,
        looks: Iterable[Callable[[R, Snapshot], None]],
        wait: Callable[[float], None],
    ) -> RunResult:
        """`wait`: let the run go on for so many seconds."""
        from sunshower.cli.display import Display, RunResult
        from sunshower.cli.health import unreached, wait_lines
        from sunshower.runtime.control.lifecycle import State

        display = Display(run.plan.graph)
        start_s = time.monotonic()
        draining_s: float | None = None  # since when
        reported: set[int] = set()  # tasks that are blocked
        while True:
            snapshot = run.snapshot()
            now = time.monotonic()
            display.see(snapshot, now)
            for line in display.news(snapshot, now):
                self._screen.say(red(line))
            self._screen.show(display, snapshot, _title(run, snapshot, now - start_s))
            for look in looks:
                look(run, snapshot)
            if snapshot.state == State.FINISHED:
                return RunResult(snapshot, now - start_s, draining_s is not None)
            if why := unreached(snapshot):
                raise TopologyFailed(why)
            if self._screen.closed.is_set():
                raise BrokenPipeError(errno.EPIPE, "the standard output was closed")
            if draining_s is not None:
                self._check_blocked(run, snapshot, reported, now - draining_s)
            if self._interrupts.requested and draining_s is None:
                draining_s = now
                for line in wait_lines(snapshot.waiting()):
                    self._screen.say(red(line))
                self._screen.say(
                    "Draining: pending tuples are finished. Interrupt again to stop at once."
                )
                run.drain()
            wait(_LOOK_EVERY_S)

    def _check_blocked(
        self, run: WatchedRun, snapshot: Snapshot, reported: set[int], for_s: float
    ) -> None:
        """Report the calls of user code that delay the end. Raises KeyboardInterrupt if a spout
        is in one for long: nothing of its task can be finished."""
        for task, stuck in snapshot.stuck.items():
            if task not in reported:
                reported.add(task)
                self._screen.say(red(f"{stuck}. Interrupt again to stop at once."))
        spouts = {spout.id for spout in run.plan.graph.spouts}
        if for_s >= _BLOCKED_S and any(
            call.component in spouts for call in snapshot.stuck.values()
        ):
            raise KeyboardInterrupt


@contextmanager
def _debuggers_quit() -> Iterator[None]:
    """Let the command `q` of a debugger end the run: Python's BdbQuit is an Exception, and so would
    fail the record, which is then tried again."""
    before: Any = bdb.BdbQuit
    quits = type("BdbQuit", (EndsProcess, KeyboardInterrupt), {})
    bdb.BdbQuit = quits  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        bdb.BdbQuit = before  # type: ignore[misc]


def _title(run: WatchedRun, snapshot: Snapshot, seconds: float) -> str:
    workers = number_of(len(run.plan.workers), "worker")
    parts = [run.plan.graph.id, str(run.plan.layout), workers, duration(seconds)]
    if snapshot.restarts:
        parts.append(f"restarts: {snapshot.restarts}")
    return "  ·  ".join(parts)
