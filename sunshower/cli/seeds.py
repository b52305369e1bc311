"""One seed of a swarm, as a job process makes it: small values in, small values out."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from functools import cache
from multiprocessing import parent_process

from sunshower.cli.loading import load
from sunshower.errors import ClusterError, ExperimentError
from sunshower.faults.experiment import Prepared, prepare
from sunshower.faults.history import History
from sunshower.faults.lines import to_lines
from sunshower.faults.outcome import Finding, Verdict, gravest
from sunshower.faults.pace import Pace, pace_of
from sunshower.faults.running import carry_out
from sunshower.faults.shrinking import Steps, shrink
from sunshower.faults.swarm import swarm
from sunshower.simulation.cluster import SimCluster
from sunshower.topologies.topology import Topology

_LINES_MAX = 120
_ROOT = re.compile(r"\broot ([0-9a-f]{16})")
_imported: dict[str, list[str]] = {}  # target → the modules that its last run has brought along


@dataclass(frozen=True)
class Task:
    """What is simulated: the same for all seeds."""

    target: str  # the file of the topology, and perhaps a name in it
    messages: int | None  # the sources are told to end after so many


@dataclass(frozen=True)
class Fate:
    """What a seed came to."""

    seed: int
    verdict: Verdict
    reason: str  # the first one of the gravest finding, with its checker


@dataclass(frozen=True)
class Minimum:
    """The least that is left of a seed that fails."""

    seed: int
    findings: tuple[Finding, ...]  # of the shortest run: those that are BROKEN
    steps: tuple[str, ...]  # of its plan
    steps_before: int
    messages: int | None  # after which its sources end
    tries: int
    history: tuple[str, ...]  # its lines about the broken messages, and the faults


def start_job() -> None:
    """Prepare a process for its work: it is quiet, and ends with the one that has started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; one decides
    gc.freeze()  # and seldom, as in a worker: 6 % more seeds
    gc.set_threshold(100_000, 20, 50)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    parent = parent_process()
    assert parent is not None, "a job is a process of its own"

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def fate_of(task: Task, seed: int) -> Fate:
    """Make the run of a seed. Raises ExperimentError for a topology that no seed can be made of."""
    findings, _ = _findings(_prepared(task, seed))
    verdict = gravest(finding.verdict for finding in findings)
    worst = next(finding for finding in findings if finding.verdict is verdict)
    return Fate(seed, verdict, f"{worst.checker}: {worst.reasons[0]}")


def minimum_of(task: Task, seed: int) -> Minimum:
    """Find a short plan that breaks the same promises as this seed does."""
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
    return Minimum(
        seed,
        left,
        tuple(map(str, shrunk.steps)),
        len(prepared.steps),
        messages,
        shrunk.tries,
        tuple(story(left, history)) if history else (),
    )


def story(findings: tuple[Finding, ...], history: History) -> list[str]:
    """The lines of a history that are about what was found, and about faults."""
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
    """The topology, declared anew for each run: what one has left in memory, such as the states
    and stores of a stream program, is not there in the next. Its neighbours are imported anew, too.
    """
    for name in _imported.pop(target, ()):
        sys.modules.pop(name, None)
    loaded = load(target)
    _imported[target] = [module.__name__ for module in loaded.modules]
    return loaded.topology


@cache
def _pace(task: Task) -> Pace | None:
    """What the sources have; None where not even an unhurt run comes to its end: each seed says
    why."""
    if task.messages is None:
        return None
    topology = _topology(task.target)
    try:
        with SimCluster(0) as cluster:
            return pace_of(lambda: topology, cluster, task.messages)
    except ExperimentError:
        raise
    except Exception:  # also a defect of our own, with which every seed is BROKEN
        return None


def _prepared(task: Task, seed: int) -> Prepared:
    pace = _pace(task)  # first: its run imports the file, too
    topology = _topology(task.target)
    one = swarm(lambda: topology, seed, messages_max=task.messages, pace=pace)
    return prepare(one, seed)


def _findings(prepared: Prepared) -> tuple[tuple[Finding, ...], History | None]:
    """What the checkers say of a run; what it raises itself is a finding, too."""
    try:
        cluster = SimCluster(prepared.seed, nodes=None, drift=None, check=True)
        outcome, history = carry_out(prepared, cluster, "sim")
    except ClusterError as error:
        return (Finding("run", Verdict.UNKNOWN, (str(error),)),), None
    except Exception as error:  # a broken invariant, or a bug: in virtual time nothing else fails
        reason = f"{type(error).__name__}: {error}"
        lines = tuple(traceback.format_exc().splitlines())
        return (Finding("no error of our own", Verdict.BROKEN, (reason,), lines),), None
    return outcome.findings, history


def _broken(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.checker for finding in findings if finding.verdict is Verdict.BROKEN}
