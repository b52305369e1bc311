"""The request of a run, and the content of plan.json, which is written before the run."""

from __future__ import annotations

import contextlib
import json
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from sunshower.experiments.experiment import Experiment, Prepared
from sunshower.experiments.report.drawing import figure
from sunshower.secret import Secret, protected
from sunshower.texts import describe
from sunshower.versions import RUN_FOLDER

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
        "tasks": {str(id): name for id, name in prepared.plan.task_names.items()},
        "steps": [step.to_fields() for step in prepared.steps],
    }


def versions(cluster: ClusterName) -> dict[str, str]:
    """Return the versions of Python, the system and the packages."""
    packages = ("sunshower", "numpy", *(("ray",) if cluster == "ray" else ()))
    found = {"python": platform.python_version(), "system": f"{sys.platform} {platform.machine()}"}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


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
            name: list(dict.fromkeys(protected(one.parameters)[name] for one in variants))
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
    """Format a parameter for `--set`."""
    return shlex.quote(value if isinstance(value, str) else json.dumps(value, default=describe))
