"""Experiments: hurt a running topology on any cluster, and prove from its history what survived."""

from sunshower.faults.checkers.delivery import AtLeastOnce, AtMostOnce, Duplicates, ExactlyOnce
from sunshower.faults.checkers.edges import EachEdgeOnce, NoPrematureAck
from sunshower.faults.checkers.healing import Liveness, NoneTimedOut, Recovers
from sunshower.faults.checkers.order import PerKeyOrder
from sunshower.faults.checkers.outages import NothingCharged
from sunshower.faults.checkers.port import Weighed
from sunshower.faults.checkers.pressure import BoundedPending
from sunshower.faults.commands import drain, rebalance
from sunshower.faults.experiment import Experiment
from sunshower.faults.facts import Facts
from sunshower.faults.history import History
from sunshower.faults.outcome import Finding, Outcome, Recovery, Verdict
from sunshower.faults.outside import outage
from sunshower.faults.plans import Step, at, every, phases, quiet, random, until
from sunshower.faults.running import run_experiment
from sunshower.faults.targets import (
    acker,
    anybody,
    component,
    master,
    node,
    spout,
    task,
    worker,
)
from sunshower.faults.vocabulary import away, cut, errors, expire, kill, lossy, pause, slow
from sunshower.faults.workload import Item, PerKey, Sink, numbers, relay, relayed
from sunshower.runtime.history import What
from sunshower.runtime.plan import Layout

__all__ = [
    "AtLeastOnce",
    "AtMostOnce",
    "BoundedPending",
    "Duplicates",
    "EachEdgeOnce",
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
    "Weighed",
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
