"""Runs the experiments of one command, one after the other, and writes their files."""

from __future__ import annotations

import contextlib
import io
import json
import platform
import shlex
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol

from sunshower.errors import ExperimentError, SunshowerError
from sunshower.experiments.experiment import Experiment, Prepared, carry_out, prepare
from sunshower.experiments.report.drawing import figure
from sunshower.experiments.runner.interrupts import Interrupts
from sunshower.experiments.runner.loading import split_target
from sunshower.experiments.runner.run_folders import (
    PLAN,
    RESULTS,
    RunFolder,
    member,
    new_folder,
    write_group_report,
    write_report,
    write_unfinished,
)
from sunshower.runtime.cluster import Cluster, Run
from sunshower.runtime.events.metrics import Snapshot
from sunshower.secret import Secret, protected
from sunshower.texts import describe
from sunshower.topologies.graph import Graph, is_internal
from sunshower.topologies.groupings import describe as describe_grouping
from sunshower.versions import RUN_FOLDER

# ---- run request ---------------------------------------------------------------------------------

ClusterName = Literal["sim", "ray"]


@dataclass(frozen=True)
class Variant:
    """The parameters and the seed of one run."""

    parameters: Mapping[str, Any]  # all of the experiment's
    seed: int


@dataclass(frozen=True)
class RunRequest:
    """The options of one `sunshower experiment run`."""

    target: str  # FILE.py or FILE.py:NAME
    cluster: ClusterName
    address: str | None
    swept: tuple[str, ...] = ()  # parameters that differ from run to run
    folder: Path | None = None  # the folder of the runs; None: the default one

    def command(self, experiment: Experiment, variant: Variant) -> str:
        """Return the command that repeats one of the runs."""
        settings = [
            f"--set-from-file {name}=FILE"
            if isinstance(value, Secret)
            else f"--set {name}={_quote(value)}"
            for name, value in protected(variant.parameters).items()
            if name in self.swept or value != protected(experiment.parameters)[name]
        ]
        where = ["--cluster", self.cluster, "--seed", str(variant.seed)]
        where += ["--address", self.address] if self.address else []
        where += ["--folder", str(self.folder)] if self.folder else []
        command = shlex.join(["sunshower", "experiment", "run", self.target, *where])
        return " ".join([command, *settings])


def run_plan(request: RunRequest, prepared: Prepared, variant: Variant) -> dict[str, Any]:
    """Return the plan.json of one run."""
    experiment = prepared.experiment
    return {
        **_plan(request, experiment, request.command(experiment, variant)),
        "seed": variant.seed,
        "parameters": dict(prepared.parameters),
        "topology": prepared.plan.graph.id,
        "graph": graph_fields(prepared.plan.graph),
        "tasks": {str(id): name for id, name in prepared.plan.task_names.items()},
        "steps": [step.to_fields() for step in prepared.steps],
    }


def versions(cluster: ClusterName) -> dict[str, str]:
    """Return the versions of Python, the system and the packages."""
    system = f"{sys.platform} {platform.machine()}"
    of_packages = {"python": platform.python_version(), "system": system}
    for package in ("sunshower", "numpy", *(("ray",) if cluster == "ray" else ())):
        with contextlib.suppress(metadata.PackageNotFoundError):
            of_packages[package] = metadata.version(package)
    return of_packages


def graph_fields(graph: Graph) -> dict[str, dict[str, Any]]:
    """Return component → its tasks, and what it reads; without the plumbing of batches."""
    return {
        component.id: {
            "tasks": component.parallelism,
            "reads": [
                [read.source, describe_grouping(read.grouping)]
                for read in component.inputs
                if not is_internal(read.stream) and not is_internal(read.source)
            ],
        }
        for component in graph.components.values()
        if not is_internal(component.id)
    }


def commit_of(folder: Path) -> str | None:
    """Return the commit of the Git repository that a folder is in, with `+` if files differ from
    it; None if it is in none, or Git is missing."""
    words = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603 - of this machine
            words, cwd=folder, capture_output=True, text=True, timeout=10.0, check=False
        )
        return done.stdout.strip() or None
    return None


def now() -> str:
    """Return the local time, to the second."""
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")


def group_plan(
    request: RunRequest, experiment: Experiment, variants: Sequence[Variant], command: str
) -> dict[str, Any]:
    """Return the plan.json of several runs; each run has its own plan.json, too."""
    first, last = variants[0], variants[-1]
    same = {n: v for n, v in protected(first.parameters).items() if n not in request.swept}
    return {
        **_plan(request, experiment, command),
        "seed": first.seed if first.seed == last.seed else f"{first.seed}–{last.seed}",
        "swept": {
            name: list(dict.fromkeys(protected(variant.parameters)[name] for variant in variants))
            for name in request.swept
        },
        "parameters": same,
    }


def _plan(request: RunRequest, experiment: Experiment, command: str) -> dict[str, Any]:
    """Return what the plans of one run and of several have in common."""
    return {
        "version": RUN_FOLDER,
        "experiment": experiment.name,
        "about": experiment.about,
        "cluster": request.cluster,
        "layout": str(experiment.layout),
        "versions": versions(request.cluster),
        "commit": commit_of(split_target(request.target)[0].parent),
        "command": command,
        "begun": now(),
        "ended": None,
    }


def variant_label(variant: Variant, swept: Sequence[str]) -> str:
    """Return the swept parameters and the seed of a run: `kill_every_s=2, seed 3`."""
    values = protected(variant.parameters)
    parts = [f"{name}={figure(values[name])}" for name in swept]
    return ", ".join([*parts, f"seed {variant.seed}"])


def _quote(value: Any) -> str:
    return shlex.quote(value if isinstance(value, str) else json.dumps(value, default=describe))


# ---- experiment runner ---------------------------------------------------------------------------


class ProgressDisplay(Protocol):
    """Shows the progress of experiments, as `sunshower.cli.display.Screen` does."""

    def say(self, text: str) -> None:
        """Print a line that stays."""

    def doing(self, text: str) -> None:
        """Show the current activity."""

    def watch(self, graph: Graph, title: str) -> Callable[[Snapshot, float], None]:
        """Return a function that shows a snapshot of a run and the run's time in seconds."""


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
        self._prepared = [
            prepare(experiment, variant.seed, variant.parameters) for variant in variants
        ]
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
                self._display.say(f"Interrupted. The files so far: {folder.path}")
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
        self._display.say(text.rstrip())

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
        folder.write(PLAN, run_plan(self._request, prepared, self._variants[number]))
        if (cluster := self._ray) is None:
            from sunshower.simulation.cluster import SimCluster

            cluster = SimCluster(prepared.seed, nodes=None, drift=None)
        # In virtual time, reading the counters would change the run.
        look = self._look(prepared, title) if self._ray else None
        verb = "Running" if self._ray else "Simulating"
        self._display.doing(f"{verb} {title} …")
        # Simulated user code runs in this process; its output is dropped.
        quiet = contextlib.nullcontext() if self._ray else contextlib.redirect_stdout(io.StringIO())
        try:
            with quiet:
                outcome, history = carry_out(
                    prepared, cluster, look=look, keep=folder.write_history
                )
        except BaseException as error:
            folder.write(PLAN, {**folder.plan, "stopped": _reason(error)})
            raise
        outcome = replace(outcome, versions=versions(self._request.cluster))
        folder.write(RESULTS, outcome.to_fields())
        folder.write(PLAN, {**folder.plan, "ended": now()})
        self._display.doing("Drawing the report …")
        write_report(folder, outcome, history)

    def _look(self, prepared: Prepared, title: str) -> Callable[[Run, float], None]:
        """Return a function that shows a run, and prints the steps of its plan when they are
        due."""
        show = self._display.watch(prepared.plan.graph, title)
        due = deque(prepared.steps)

        def look(run: Run, now_s: float) -> None:
            while due and due[0].at_s <= now_s:
                self._display.say(str(due.popleft()))
            # While the master is away, there is no snapshot; if it has failed, `wait` reports that.
            with contextlib.suppress(SunshowerError):
                show(run.snapshot(), now_s)

        return look


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return str(error) if isinstance(error, SunshowerError) else f"{type(error).__name__}: {error}"
