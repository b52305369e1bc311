"""Runs an experiment on a cluster: submits, injects the faults, waits, runs the checkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sunshower.errors import ClusterError, TopologyFailed
from sunshower.experiments.checkers.checker import judge
from sunshower.experiments.checkers.delivery import excused
from sunshower.experiments.checkers.recovery import recoveries
from sunshower.experiments.evidence.event_history import History
from sunshower.experiments.evidence.facts import Ending
from sunshower.experiments.evidence.figures import figures_of
from sunshower.experiments.evidence.outcome import Outcome
from sunshower.experiments.experiment import Experiment, Prepared, prepare
from sunshower.experiments.faults.commands import Drain
from sunshower.experiments.faults.fault_kinds import Kill, harmless
from sunshower.experiments.faults.nemesis import Nemesis
from sunshower.runtime.cluster import Cluster, Run
from sunshower.runtime.events.event_log import Entry


def run_experiment(
    experiment: Experiment,
    cluster: Cluster,
    seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
) -> tuple[Outcome, History]:
    """Prepare and carry out one run. Raises as `prepare`, and ClusterError if it cannot start."""
    return carry_out(prepare(experiment, seed, parameters), cluster)


def carry_out(
    prepared: Prepared,
    cluster: Cluster,
    *,
    look: Callable[[Run, float], None] | None = None,
    keep: Callable[[History], None] = lambda _: None,
) -> tuple[Outcome, History]:
    """Make one run. The outcome of a run that does not finish has an `error`.

    Time 0 is the activation of the spouts. `look` is called with the run and its time every tenth
    of a second. `keep` is called with the history; if the run is interrupted, with what there is.
    """
    experiment = prepared.experiment
    layout, sample = experiment.layout, experiment.sample
    run = cluster.submit(prepared.plan.graph, layout, active=False, sample=sample)
    try:
        watch = look and partial(look, run)
        nemesis = Nemesis(run, prepared.seed, emits_max=experiment.messages_max, look=watch)
        try:
            ending, error = _inject_faults(run, nemesis, prepared)
        except BaseException:
            keep(_history(run, nemesis, prepared, "interrupted"))
            raise
        seconds = run.now() - nemesis.begun_s
        history = _history(run, nemesis, prepared)
        keep(history)
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
    counts = {"faults": len(nemesis.done), "kills": kills}
    outcome = Outcome(
        experiment=experiment.name,
        cluster=cluster.name,
        seed=prepared.seed,
        parameters=prepared.parameters,
        findings=judge(prepared.checkers, history, facts),
        recoveries=recoveries(history, excused(history, facts)),
        figures={**figures_of(history), **counts},
        seconds=seconds,
        error=error,
        undone=tuple(nemesis.undone),
    )
    return outcome, history


def _inject_faults(run: Run, nemesis: Nemesis, prepared: Prepared) -> tuple[Ending, str | None]:
    """Carry out the plan, until the run is finished or its time is over."""
    experiment = prepared.experiment
    try:
        steps = nemesis.begin_ahead(prepared.steps)
        run.activate()
        is_finished = nemesis.carry_out(steps, experiment.faults_end_s)
        if is_finished or nemesis.wait(experiment.seconds_max):
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
    endless = [task for task in tasks if task.task in spouts and not task.done]
    reason = f"it is not finished after {prepared.experiment.seconds_max:g} s"
    if endless and not unsettled:
        return f"{reason}: nothing is pending, but the source has not ended; give messages_max"
    return f"{reason}: {unsettled} messages are not settled"


def _history(run: Run, nemesis: Nemesis, prepared: Prepared, cut: str | None = None) -> History:
    entries: list[Entry] = []
    try:
        entries = run.history()
    except ClusterError as error:
        cut = f"the history is lost: {error}"
    return History([*entries, *nemesis.entries], prepared.facts.tasks, nemesis.begun_s, cut)
