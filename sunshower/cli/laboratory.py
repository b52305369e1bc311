"""Where runs of experiments are made: on which cluster, and what is written down of each."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from types import ModuleType

from rich.markup import escape

from sunshower.cli.folders import HISTORY, PLAN, RESULTS, RunFolder
from sunshower.cli.orders import Order, now, versions
from sunshower.cli.reports import write_report
from sunshower.cli.screen import Screen
from sunshower.cli.watching import WatchedCluster
from sunshower.errors import SunshowerError
from sunshower.faults.experiment import Prepared
from sunshower.faults.history import History, task_names
from sunshower.faults.lines import to_lines
from sunshower.faults.outcome import Outcome
from sunshower.faults.running import carry_out
from sunshower.runtime.cluster import Cluster


class Laboratory:
    """Use it as a context manager: a Ray that was started here ends with it."""

    def __init__(self, order: Order, screen: Screen, modules: Iterable[ModuleType]) -> None:
        self._order, self._screen, self._modules = order, screen, tuple(modules)
        self._stack = ExitStack()
        self._ray: Cluster | None = None

    def __enter__(self) -> Laboratory:
        if self._order.cluster == "ray":
            self._ray = self._stack.enter_context(self._start_ray())
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def _start_ray(self) -> Iterator[Cluster]:
        from sunshower.actors.cluster import RayCluster
        from sunshower.actors.output import worker_output
        from sunshower.actors.shipping import ship

        def ignore(pid: int, is_error: bool, lines: list[str]) -> None:
            """The history tells it better: failures are what it is all about."""

        address = self._order.address
        self._screen.doing(f"Looking for Ray at {address} …" if address else "Starting Ray …")
        # In this order: Ray has news of the dead to tell until its very end.
        with worker_output(ignore), RayCluster(address) as cluster:
            ship(self._modules)
            yield cluster

    def conduct(self, prepared: Prepared, folder: RunFolder, title: str) -> Outcome:
        """One run from its plan.json to its report. Raises what `carry_out` raises.

        Whatever ends it before its end is written into its plan.json, with what there is of its
        history beside it.
        """
        watched = self._watched(prepared, title)
        verb = "Running" if self._ray else "Simulating"
        self._screen.doing(f"{verb} {escape(title)} …")
        try:
            with self._quiet():
                outcome, history = carry_out(prepared, watched, self._order.cluster, watched.faults)
        except BaseException as error:
            _keep(folder, prepared, watched, error)
            raise
        outcome = replace(outcome, versions=versions(self._order.cluster))
        write_history(folder, history)
        folder.write(RESULTS, outcome.to_fields())
        folder.write(PLAN, {**folder.plan, "ended": now()})
        self._screen.doing("Drawing the report …")
        write_report(folder, outcome, history)
        return outcome

    def _watched(self, prepared: Prepared, title: str) -> WatchedCluster:
        live = self._ray is not None
        cluster = self._ray or _simulated(prepared.seed)
        return WatchedCluster(cluster, self._screen, title, prepared.steps, live=live)

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        """Simulated user code runs in this process; what it prints belongs nowhere."""
        if self._ray is not None:
            yield
            return
        with contextlib.redirect_stdout(io.StringIO()):
            yield


def write_history(folder: RunFolder, history: History) -> None:
    """Write history.jsonl, line by line: a long one need not be in memory twice."""
    with (folder.path / HISTORY).open("w", encoding="utf-8") as file:
        file.writelines(to_lines(history))


def _keep(
    folder: RunFolder, prepared: Prepared, watched: WatchedCluster, error: BaseException
) -> None:
    """Write down that a run did not come to its end, and what is left of it."""
    said = str(error) if isinstance(error, SunshowerError) else f"{type(error).__name__}: {error}"
    reason = "interrupted" if isinstance(error, KeyboardInterrupt) else said
    folder.write(PLAN, {**folder.plan, "stopped": reason})
    run = watched.run
    if run is not None and run.entries:
        names = task_names(prepared.plan)
        entries = [*run.entries, *watched.faults]
        write_history(folder, History(entries, names, run.begun_s, cut=reason))


def _simulated(seed: int) -> Cluster:
    from sunshower.simulation.cluster import SimCluster

    return SimCluster(seed, nodes=None, drift=None)
