"""Experiments: inject faults into a running topology, and check guarantees in its history."""

from typing import TYPE_CHECKING

from sunshower.installed import lazy_exports

if TYPE_CHECKING:
    from sunshower.experiments.checkers.checker import CheckResult
    from sunshower.experiments.checkers.delivery import (
        AtLeastOnce,
        AtMostOnce,
        Duplicates,
        ExactlyOnce,
        PerKeyOrder,
    )
    from sunshower.experiments.checkers.failures import NoneTimedOut, NothingCharged
    from sunshower.experiments.checkers.recovery import Liveness, Recovers
    from sunshower.experiments.checkers.tracking import BoundedPending, EachEdgeOnce, NoPrematureAck
    from sunshower.experiments.evidence.event_history import History
    from sunshower.experiments.evidence.facts import Ending, Facts
    from sunshower.experiments.evidence.outcome import Finding, Outcome, Recovery, Verdict
    from sunshower.experiments.experiment import Experiment
    from sunshower.experiments.experiment_run import run_experiment
    from sunshower.experiments.faults.commands import drain, rebalance
    from sunshower.experiments.faults.fault_kinds import (
        away,
        cut,
        errors,
        expire,
        isolate,
        kill,
        lossy,
        outage,
        pause,
        slow,
    )
    from sunshower.experiments.faults.fault_plan import (
        Step,
        at,
        every,
        phases,
        quiet,
        random,
        until,
    )
    from sunshower.experiments.faults.targets import (
        acker,
        anybody,
        component,
        master,
        node,
        spout,
        task,
        worker,
    )
    from sunshower.experiments.workload import Item, PerKey, Sink, numbers, relay, relayed
    from sunshower.runtime.events.event_log import What
    from sunshower.runtime.plan import Layout

__all__ = [
    "AtLeastOnce",
    "AtMostOnce",
    "BoundedPending",
    "CheckResult",
    "Duplicates",
    "EachEdgeOnce",
    "Ending",
    "ExactlyOnce",
    "Experiment",
    "Facts",
    "Finding",
    "History",
    "Item",
    "Layout",
    "Liveness",
    "NoPrematureAck",
    "NoneTimedOut",
    "NothingCharged",
    "Outcome",
    "PerKey",
    "PerKeyOrder",
    "Recovers",
    "Recovery",
    "Sink",
    "Step",
    "Verdict",
    "What",
    "acker",
    "anybody",
    "at",
    "away",
    "component",
    "cut",
    "drain",
    "errors",
    "every",
    "expire",
    "isolate",
    "kill",
    "lossy",
    "master",
    "node",
    "numbers",
    "outage",
    "pause",
    "phases",
    "quiet",
    "random",
    "rebalance",
    "relay",
    "relayed",
    "run_experiment",
    "slow",
    "spout",
    "task",
    "until",
    "worker",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(
        __name__,
        {
            "checkers.checker": "CheckResult",
            "checkers.delivery": "AtLeastOnce AtMostOnce Duplicates ExactlyOnce PerKeyOrder",
            "checkers.failures": "NoneTimedOut NothingCharged",
            "checkers.recovery": "Liveness Recovers",
            "checkers.tracking": "BoundedPending EachEdgeOnce NoPrematureAck",
            "evidence.event_history": "History",
            "evidence.facts": "Ending Facts",
            "evidence.outcome": "Finding Outcome Recovery Verdict",
            "experiment": "Experiment",
            "experiment_run": "run_experiment",
            "faults.commands": "drain rebalance",
            "faults.fault_kinds": "away cut errors expire isolate kill lossy outage pause slow",
            "faults.fault_plan": "Step at every phases quiet random until",
            "faults.targets": "acker anybody component master node spout task worker",
            "workload": "Item PerKey Sink numbers relay relayed",
            "sunshower.runtime.events.event_log": "What",
            "sunshower.runtime.plan": "Layout",
        },
    )
