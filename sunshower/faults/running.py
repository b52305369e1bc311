"""One run of an experiment on one cluster: submit, hurt, wait, judge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sunshower.errors import ClusterError, TopologyFailed
from sunshower.faults.checkers.delivery import excused
from sunshower.faults.checkers.healing import recoveries
from sunshower.faults.checkers.port import judge
from sunshower.faults.commands import Drain
from sunshower.faults.experiment import Experiment, Prepared, prepare
from sunshower.faults.facts import Ending
from sunshower.faults.figures import figures_of
from sunshower.faults.history import History
from sunshower.faults.nemesis import Nemesis
from sunshower.faults.outcome import Outcome
from sunshower.faults.vocabulary import Kill, harmless
from sunshower.runtime.cluster import Cluster, Run
from sunshower.runtime.history import Entry


def run_experiment(
    experiment: Experiment,
    cluster: Cluster,
    seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
    cluster_name: str = "sim",
) -> tuple[Outcome, History]:
    """Prepare and carry out one run. Raises as `prepare`, and ClusterError if it cannot begin."""
    return carry_out(prepare(experiment, seed, parameters), cluster, cluster_name)


def carry_out(
    prepared: Prepared, cluster: Cluster, cluster_name: str, faults: list[Entry] | None = None
) -> tuple[Outcome, History]:
    """One run, from the submit to the verdicts. One that does not end has an `error` in them.

    The run begins when its spouts are let loose: what was before has a time below 0. `faults` is
    filled with their entries as they come, for whoever may be interrupted.
    """
    experiment = prepared.experiment
    layout, sample = experiment.layout, experiment.sample
    run = cluster.submit(prepared.plan.graph, layout, active=False, sample=sample)
    try:
        nemesis = Nemesis(run, prepared.seed, emits_max=experiment.messages_max, entries=faults)
        ending, error = _hurt(run, nemesis, prepared)
        seconds = run.now() - nemesis.begun_s
        history = _history(run, nemesis, prepared)
    finally:
        run.stop()
    facts = replace(
        prepared.facts,
        pending_max=nemesis.plan.graph.config.spout_slots,  # a cluster may have made it smaller
        ending=ending,
        error=error,
        harmless=frozenset(str(step.fault) for step in nemesis.done if harmless(step.fault)),
        drained=nemesis.drained or any(isinstance(step.fault, Drain) for step in nemesis.done),
    )
    kills = sum(isinstance(step.fault, Kill) for step in nemesis.done)
    hurts = {"faults": len(nemesis.done), "kills": kills}
    outcome = Outcome(
        experiment.name,
        cluster_name,
        prepared.seed,
        prepared.parameters,
        judge(prepared.checkers, history, facts),
        recoveries(history, excused(history, facts)),
        {**figures_of(history), **hurts},
        seconds,
        error=error,
        undone=tuple(nemesis.undone),
    )
    return outcome, history


def _hurt(run: Run, nemesis: Nemesis, prepared: Prepared) -> tuple[Ending, str | None]:
    """Let it run and hurt it, until it is finished or patience is over."""
    experiment = prepared.experiment
    hurt_s = math.inf if experiment.hurt_s is None else experiment.hurt_s
    try:
        steps = nemesis.begin_ahead(prepared.steps)
        run.activate()
        if nemesis.carry_out(steps, hurt_s) or nemesis.wait(experiment.seconds_max):
            return Ending.FINISHED, None
        return Ending.STUCK, _stuck(run, prepared)
    except TopologyFailed as error:
        return Ending.HALTED, str(error)
    except ClusterError as error:
        return Ending.GONE, str(error)


def _stuck(run: Run, prepared: Prepared) -> str:
    tasks = list(run.snapshot().tasks())
    unsettled = sum(task.unsettled for task in tasks)
    spouts = {task.id for task in prepared.plan.spouts}
    asleep = [task for task in tasks if task.task in spouts and not task.done]
    patience = f"it is not finished after {prepared.experiment.seconds_max:g} s"
    if asleep and not unsettled:
        return f"{patience}: nothing is pending, but the source has not ended; give messages_max"
    return f"{patience}: {unsettled} messages are not settled"


def _history(run: Run, nemesis: Nemesis, prepared: Prepared) -> History:
    cut = None
    entries: list[Entry] = []
    try:
        entries = run.history()
    except ClusterError as error:
        cut = f"the history is lost: {error}"
    return History([*entries, *nemesis.entries], prepared.facts.tasks, nemesis.begun_s, cut)
