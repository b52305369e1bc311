"""Runs the experiments that one command asks for, one after the other, and writes their files."""

from __future__ import annotations

import contextlib
import io
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.markup import escape

from sunshower.errors import ExperimentError, SunshowerError
from sunshower.experiments.evidence.event_history import History, task_names
from sunshower.experiments.evidence.history_lines import to_lines
from sunshower.experiments.experiment import Experiment, Prepared, prepare
from sunshower.experiments.experiment_run import carry_out
from sunshower.experiments.runner.interrupts import Interrupts
from sunshower.experiments.runner.run_folders import (
    HISTORY,
    PLAN,
    RESULTS,
    RunFolder,
    member,
    new_folder,
)
from sunshower.experiments.runner.run_reports import (
    write_group_report,
    write_report,
    write_unfinished,
)
from sunshower.experiments.runner.run_request import (
    RunRequest,
    Variant,
    group_plan,
    now,
    run_plan,
    variant_label,
    versions,
)
from sunshower.experiments.runner.watched_cluster import ProgressDisplay, WatchedCluster
from sunshower.runtime.cluster import Cluster


class ExperimentRunner:
    """Makes one run of an experiment, or several in one folder."""

    def __init__(
        self,
        request: RunRequest,
        experiment: Experiment,
        variants: Sequence[Variant],
        display: ProgressDisplay,
    ) -> None:
        """Check everything before anything starts.

        Raises ExperimentError, and what the declaration of the topology raises.
        """
        if request.cluster == "sim" and not experiment.simulated:
            raise ExperimentError(
                f"{experiment} cannot be simulated: it depends on what runs outside of the "
                "topology. Add --cluster ray"
            )
        self._request, self._experiment, self._variants = request, experiment, variants
        self._display = display
        self._prepared = [prepare(experiment, one.seed, one.parameters) for one in variants]
        self._ray: Cluster | None = None  # None: each run has a simulated cluster of its own

    def run(self, root: Path, modules: Iterable[ModuleType], command: str) -> RunFolder:
        """Make all runs and return their folder below `root`.

        `command` is the whole command line. A single run raises its error; of several runs an
        error is the outcome of that run. After an interrupt there is a report of the finished runs.
        """
        with self._open_cluster(tuple(modules)), Interrupts():
            time = datetime.now().astimezone()
            folder = new_folder(root, self._experiment.name, time)
            try:
                if len(self._variants) == 1:
                    self._run_one(folder, 0)
                else:
                    self._run_all(folder, command)
            except KeyboardInterrupt:
                self._display.say(f"Interrupted. What there is: {escape(str(folder.path))}")
                raise
        return folder

    @contextlib.contextmanager
    def _open_cluster(self, modules: tuple[ModuleType, ...]) -> Iterator[None]:
        """Start Ray, or connect to it, if the request asks for it."""
        if self._request.cluster != "ray":
            yield
            return
        from sunshower.actors.cluster import RayCluster
        from sunshower.actors.output import worker_output
        from sunshower.actors.shipping import ship

        def ignore(pid: int, is_error: bool, lines: list[str]) -> None:
            """Drop the output of workers: the history has their failures."""

        address = self._request.address
        self._display.doing(f"Looking for Ray at {address} …" if address else "Starting Ray …")
        # In this order: Ray reports dead processes until it has ended.
        with worker_output(ignore), RayCluster(address) as self._ray:
            ship(modules)
            yield

    def _run_all(self, group: RunFolder, command: str) -> None:
        group.write(PLAN, group_plan(self._request, self._experiment, self._variants, command))
        ended: dict[str, Any] = {"stopped": "interrupted"}
        try:
            for number in range(len(self._variants)):
                self._try(member(group, number + 1), number)
            ended = {"ended": now()}
        finally:
            group.write(PLAN, {**group.plan, **ended})
            write_group_report(group)

    def _try(self, folder: RunFolder, number: int) -> None:
        try:
            self._run_one(folder, number)
        except Exception as error:
            self._report_error(number, error)
            if not folder.is_over:
                try:
                    write_unfinished(folder)
                except Exception as error:  # the other runs continue
                    self._report_error(number, error)

    def _report_error(self, number: int, error: Exception) -> None:
        trace = "" if isinstance(error, SunshowerError) else f"\n{traceback.format_exc()}"
        text = f"{self._title(number)}: {type(error).__name__}: {error}{trace}"
        self._display.say(escape(text.rstrip()))

    def _title(self, number: int) -> str:
        label = variant_label(self._variants[number], self._request.swept)
        if len(self._variants) > 1:
            label = f"run {number + 1} of {len(self._variants)}: {label}"
        return f"{self._experiment.name}  ·  {label}"

    def _run_one(self, folder: RunFolder, number: int) -> None:
        """Make one run, from its plan.json to its report. Raises what `carry_out` raises.

        If the run does not finish, plan.json has the reason, and history.jsonl what happened so
        far.
        """
        prepared, title = self._prepared[number], self._title(number)
        cluster_name = self._request.cluster
        folder.write(PLAN, run_plan(self._request, prepared, self._variants[number]))
        cluster = WatchedCluster(
            self._ray or _simulated(prepared.seed),
            self._display,
            title,
            prepared.steps,
            live=self._ray is not None,
        )
        verb = "Running" if self._ray else "Simulating"
        self._display.doing(f"{verb} {escape(title)} …")
        # Simulated user code runs in this process; its output is dropped.
        quiet = contextlib.nullcontext() if self._ray else contextlib.redirect_stdout(io.StringIO())
        try:
            with quiet:
                outcome, history = carry_out(prepared, cluster, cluster_name, cluster.faults)
        except BaseException as error:
            _keep_unfinished(folder, prepared, cluster, error)
            raise
        outcome = replace(outcome, versions=versions(cluster_name))
        _write_history(folder, history)
        folder.write(RESULTS, outcome.to_fields())
        folder.write(PLAN, {**folder.plan, "ended": now()})
        self._display.doing("Drawing the report …")
        write_report(folder, outcome, history)


def _write_history(folder: RunFolder, history: History) -> None:
    """Write history.jsonl line by line, so that a long history is not in memory twice."""
    with (folder.path / HISTORY).open("w", encoding="utf-8") as file:
        file.writelines(to_lines(history))


def _keep_unfinished(
    folder: RunFolder, prepared: Prepared, cluster: WatchedCluster, error: BaseException
) -> None:
    """Write why a run did not finish, and its history so far."""
    reason = str(error) if isinstance(error, SunshowerError) else f"{type(error).__name__}: {error}"
    if isinstance(error, KeyboardInterrupt):
        reason = "interrupted"
    folder.write(PLAN, {**folder.plan, "stopped": reason})
    run = cluster.run
    if run is not None and run.entries:
        entries = [*run.entries, *cluster.faults]
        history = History(entries, task_names(prepared.plan), run.begun_s, cut=reason)
        _write_history(folder, history)


def _simulated(seed: int) -> Cluster:
    from sunshower.simulation.cluster import SimCluster

    return SimCluster(seed, nodes=None, drift=None)
