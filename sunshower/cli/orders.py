"""What somebody wants to be run, as it is written into plan.json before anything starts."""

from __future__ import annotations

import contextlib
import json
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from sunshower.cli.parameters import Variant
from sunshower.faults.experiment import Experiment, Prepared
from sunshower.faults.history import task_names
from sunshower.faults.report.words import figure

ClusterName = Literal["sim", "ray"]


@dataclass(frozen=True)
class Order:
    """What somebody typed."""

    target: str  # the file, and perhaps a name in it
    cluster: ClusterName
    address: str | None
    swept: tuple[str, ...] = ()  # parameters that differ from run to run
    folder: Path | None = None  # where its runs are; None: where they always are

    def command(self, experiment: Experiment, variant: Variant) -> str:
        """What runs one of its runs again."""
        settings = [
            f"--set {name}={_word(value)}"
            for name, value in variant.parameters.items()
            if name in self.swept or value != experiment.parameters[name]
        ]
        where = ["--cluster", self.cluster, "--seed", str(variant.seed)]
        where += ["--address", self.address] if self.address else []
        where += ["--folder", str(self.folder)] if self.folder else []
        command = shlex.join(["sunshower", "experiment", "run", self.target, *where])
        return " ".join([command, *settings])


def plan_of(order: Order, prepared: Prepared, variant: Variant) -> dict[str, Any]:
    """What plan.json holds of one run before it begins."""
    experiment = prepared.experiment
    return {
        "experiment": experiment.name,
        "about": experiment.about,
        "cluster": order.cluster,
        "seed": variant.seed,
        "parameters": dict(prepared.parameters),
        "layout": str(experiment.layout),
        "topology": prepared.plan.graph.id,
        "tasks": {str(id): name for id, name in task_names(prepared.plan).items()},
        "steps": [step.to_fields() for step in prepared.steps],
        "versions": versions(order.cluster),
        "command": order.command(experiment, variant),
        "begun": now(),
        "ended": None,
    }


def versions(cluster: ClusterName) -> dict[str, str]:
    """What the run was made with."""
    packages = ("sunshower", "numpy", *(("ray",) if cluster == "ray" else ()))
    found = {"python": platform.python_version(), "system": f"{sys.platform} {platform.machine()}"}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def now() -> str:
    """The time on the wall, to the second."""
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")


def plan_of_all(
    order: Order, experiment: Experiment, chosen: Sequence[Variant], command: str
) -> dict[str, Any]:
    """What plan.json holds of several runs; each has one of its own beside it."""
    first, last = chosen[0], chosen[-1]
    same = {n: v for n, v in first.parameters.items() if n not in order.swept}
    return {
        "experiment": experiment.name,
        "about": experiment.about,
        "cluster": order.cluster,
        "seed": first.seed if first.seed == last.seed else f"{first.seed}–{last.seed}",
        "swept": {
            name: list(dict.fromkeys(one.parameters[name] for one in chosen))
            for name in order.swept
        },
        "parameters": same,
        "layout": str(experiment.layout),
        "versions": versions(order.cluster),
        "command": command,
        "begun": now(),
        "ended": None,
    }


def in_words(variant: Variant, swept: Sequence[str]) -> str:
    """Which one of several runs it is."""
    parts = [f"{name}={figure(variant.parameters[name])}" for name in swept]
    return ", ".join([*parts, f"seed {variant.seed}"])


def _word(value: Any) -> str:
    """A parameter as `--set` reads it."""
    return shlex.quote(value if isinstance(value, str) else json.dumps(value, default=repr))
