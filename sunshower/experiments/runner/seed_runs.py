"""Simulates one seed of a swarm in a job process, and shrinks a seed that fails."""

from __future__ import annotations

import os
import re
import signal
import threading
import traceback
from dataclasses import dataclass
from functools import cache
from multiprocessing import parent_process

from sunshower.errors import ClusterError, ExperimentError
from sunshower.experiments.evidence.event_history import History
from sunshower.experiments.evidence.history_lines import to_lines
from sunshower.experiments.evidence.outcome import Finding, Verdict, gravest
from sunshower.experiments.experiment import Prepared, prepare
from sunshower.experiments.experiment_run import carry_out
from sunshower.experiments.faults.pace import Pace, pace_of
from sunshower.experiments.runner.loading import load
from sunshower.experiments.shrinking import Steps, shrink
from sunshower.experiments.swarm import swarm
from sunshower.runtime.garbage import collect_seldom
from sunshower.simulation.cluster import SimCluster
from sunshower.topologies.topology import Topology

_LINES_MAX = 120
_ROOT = re.compile(r"\broot ([0-9a-f]{16})")


@dataclass(frozen=True)
class SwarmTask:
    """What is simulated: the same for all seeds."""

    target: str  # FILE.py or FILE.py:NAME
    messages: int | None  # the sources are drained after so many


@dataclass(frozen=True)
class SeedResult:
    """The verdict of one seed."""

    seed: int
    verdict: Verdict
    reason: str  # the first reason of the gravest finding, with its checker


@dataclass(frozen=True)
class ShrunkSeed:
    """The shortest failing run that was found for a seed."""

    seed: int
    findings: tuple[Finding, ...]  # the BROKEN ones
    steps: tuple[str, ...]  # of its plan
    steps_before: int
    messages: int | None  # after which its sources are drained
    tries: int
    history: tuple[str, ...]  # its lines about the failing messages and the faults


def start_job() -> None:
    """Prepare a job process: it prints nothing, ignores Ctrl-C, and ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the parent decides
    collect_seldom()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    parent = parent_process()
    assert parent is not None, "a job is a process of its own"

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def run_seed(task: SwarmTask, seed: int) -> SeedResult:
    """Simulate a seed. Raises ExperimentError if the topology cannot be simulated."""
    findings, _ = _findings(_prepared(task, seed))
    verdict = gravest(finding.verdict for finding in findings)
    worst = next(finding for finding in findings if finding.verdict is verdict)
    return SeedResult(seed, verdict, f"{worst.checker}: {worst.reasons[0]}")


def shrink_seed(task: SwarmTask, seed: int) -> ShrunkSeed:
    """Find a short plan for which one of the same checkers fails."""
    prepared = _prepared(task, seed)
    wanted = _broken(_findings(prepared)[0])

    def shortened(steps: Steps, messages: int | None) -> Prepared:
        return _prepared(task, seed).shortened(steps, messages or task.messages)

    def breaks(steps: Steps, messages: int | None) -> bool:
        return bool(_broken(_findings(shortened(steps, messages))[0]) & wanted)

    shrunk = shrink(prepared.steps, breaks, messages=task.messages)
    messages = shrunk.messages or task.messages
    findings, history = _findings(shortened(shrunk.steps, messages))
    left = tuple(finding for finding in findings if finding.verdict is Verdict.BROKEN)
    return ShrunkSeed(
        seed=seed,
        findings=left,
        steps=tuple(map(str, shrunk.steps)),
        steps_before=len(prepared.steps),
        messages=messages,
        tries=shrunk.tries,
        history=tuple(relevant_lines(left, history)) if history else (),
    )


def relevant_lines(findings: tuple[Finding, ...], history: History) -> list[str]:
    """Return the lines of a history about the messages of the findings, and about faults."""
    roots = {root for one in findings for line in one.evidence for root in _ROOT.findall(line)}
    marks = tuple(f'"{root}"' for root in roots)
    lines = [
        line.rstrip("\n")
        for line in to_lines(history)
        if '"fault": ' in line or any(mark in line for mark in marks)
    ]
    if len(lines) > _LINES_MAX:
        lines[_LINES_MAX:] = [f"… and {len(lines) - _LINES_MAX} more lines"]
    return lines


def _topology(target: str) -> Topology:
    """Import the topology again for each run, with the modules beside it, so that no run sees what
    an earlier one left in memory, such as the states of a stream program."""
    return load(target).topology


@cache
def _pace(task: SwarmTask) -> Pace | None:
    """Measure the sources in a run without faults; None if it does not finish: each seed then
    reports why."""
    if task.messages is None:
        return None
    topology = _topology(task.target)
    try:
        with SimCluster(0) as cluster:
            return pace_of(lambda: topology, cluster, task.messages)
    except ExperimentError:
        raise
    except Exception:  # a bug of ours, too: every seed is BROKEN then
        return None


def _prepared(task: SwarmTask, seed: int) -> Prepared:
    pace = _pace(task)  # first: it imports the file, too
    topology = _topology(task.target)
    one = swarm(lambda: topology, seed, messages_max=task.messages, pace=pace)
    return prepare(one, seed)


def _findings(prepared: Prepared) -> tuple[tuple[Finding, ...], History | None]:
    """Run, and return the checkers' findings; an error of the run is a finding, too."""
    try:
        cluster = SimCluster(prepared.seed, nodes=None, drift=None, check=True)
        outcome, history = carry_out(prepared, cluster)
    except ClusterError as error:
        return (Finding("run", Verdict.UNKNOWN, (str(error),)),), None
    except Exception as error:  # a broken invariant or a bug: nothing else fails in virtual time
        reason = f"{type(error).__name__}: {error}"
        lines = tuple(traceback.format_exc().splitlines())
        return (Finding("no error of our own", Verdict.BROKEN, (reason,), lines),), None
    return outcome.findings, history


def _broken(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.checker for finding in findings if finding.verdict is Verdict.BROKEN}
