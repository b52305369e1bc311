"""Experiments: inject faults into a running topology, and check guarantees in its history."""

from typing import TYPE_CHECKING

from sunshower.installed import lazy_exports

if TYPE_CHECKING:
    from sunshower.experiments.checkers import (
        AtLeastOnce,
        AtMostOnce,
        BoundedPending,
        CheckResult,
        Duplicates,
        EachEdgeOnce,
        ExactlyOnce,
        Liveness,
        NoneTimedOut,
        NoPrematureAck,
        NothingCharged,
        PerKeyOrder,
        Recovers,
    )
    from sunshower.experiments.evidence.event_history import History
    from sunshower.experiments.evidence.outcome import (
        Ending,
        Facts,
        Finding,
        Outcome,
        Recovery,
        Verdict,
    )
    from sunshower.experiments.experiment import (
        Experiment,
        Item,
        PerKey,
        Sink,
        numbers,
        relay,
        relayed,
        run_experiment,
    )
    from sunshower.experiments.faults.fault_kinds import (
        acker,
        anybody,
        away,
        component,
        cut,
        errors,
        expire,
        isolate,
        kill,
        lossy,
        master,
        node,
        outage,
        pause,
        slow,
        spout,
        task,
        worker,
    )
    from sunshower.experiments.faults.fault_plan import (
        Step,
        at,
        drain,
        every,
        phases,
        quiet,
        random,
        rebalance,
        until,
    )
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
            "sunshower.runtime.events.event_log": "What",
            "sunshower.runtime.plan": "Layout",
            "checkers": "AtLeastOnce AtMostOnce BoundedPending CheckResult Duplicates "
            "EachEdgeOnce ExactlyOnce Liveness NoPrematureAck NoneTimedOut NothingCharged "
            "PerKeyOrder Recovers",
            "evidence.event_history": "History",
            "evidence.outcome": "Ending Facts Finding Outcome Recovery Verdict",
            "experiment": "Experiment Item PerKey Sink numbers relay relayed run_experiment",
            "faults.fault_kinds": "acker anybody away component cut errors expire isolate kill "
            "lossy master node outage pause slow spout task worker",
            "faults.fault_plan": "Step at drain every phases quiet random rebalance until",
        },
    )
