"""Experiments: hurt a running topology on any cluster, and prove from its history what survived.

What an experiment file needs is here; `sunshower experiment run FILE` carries it out.
"""

from sunshower.faults.checkers.delivery import AtLeastOnce, AtMostOnce, Duplicates, ExactlyOnce
from sunshower.faults.checkers.edges import EachEdgeOnce, NoPrematureAck
from sunshower.faults.checkers.healing import Liveness, Recovers
from sunshower.faults.checkers.order import PerKeyOrder
from sunshower.faults.checkers.pressure import BoundedPending
from sunshower.faults.experiment import Experiment
from sunshower.faults.plans import Step, at, every, phases, quiet, random, until
from sunshower.faults.targets import acker, anybody, component, master, node, spout, task, worker
from sunshower.faults.vocabulary import cut, errors, expire, kill, lossy, pause, slow
from sunshower.faults.workload import Item, PerKey, Sink, numbers, relay, relayed

__all__ = [
    "AtLeastOnce",
    "AtMostOnce",
    "BoundedPending",
    "Duplicates",
    "EachEdgeOnce",
    "ExactlyOnce",
    "Experiment",
    "Item",
    "Liveness",
    "NoPrematureAck",
    "PerKey",
    "PerKeyOrder",
    "Recovers",
    "Sink",
    "Step",
    "acker",
    "anybody",
    "at",
    "component",
    "cut",
    "errors",
    "every",
    "expire",
    "kill",
    "lossy",
    "master",
    "node",
    "numbers",
    "pause",
    "phases",
    "quiet",
    "random",
    "relay",
    "relayed",
    "slow",
    "spout",
    "task",
    "until",
    "worker",
]
