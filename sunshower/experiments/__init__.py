"""Experiments: inject faults into a running topology, and check guarantees in its history."""

from typing import TYPE_CHECKING

from sunshower.installed import exports

if TYPE_CHECKING:
    from sunshower.experiments.checkers import AtLeastOnce as AtLeastOnce
    from sunshower.experiments.checkers import AtMostOnce as AtMostOnce
    from sunshower.experiments.checkers import BoundedPending as BoundedPending
    from sunshower.experiments.checkers import CheckResult as CheckResult
    from sunshower.experiments.checkers import Duplicates as Duplicates
    from sunshower.experiments.checkers import EachEdgeOnce as EachEdgeOnce
    from sunshower.experiments.checkers import ExactlyOnce as ExactlyOnce
    from sunshower.experiments.checkers import Liveness as Liveness
    from sunshower.experiments.checkers import NoneTimedOut as NoneTimedOut
    from sunshower.experiments.checkers import NoPrematureAck as NoPrematureAck
    from sunshower.experiments.checkers import NothingCharged as NothingCharged
    from sunshower.experiments.checkers import PerKeyOrder as PerKeyOrder
    from sunshower.experiments.checkers import Recovers as Recovers
    from sunshower.experiments.event_history import History as History
    from sunshower.experiments.experiment import Experiment as Experiment
    from sunshower.experiments.experiment import Item as Item
    from sunshower.experiments.experiment import PerKey as PerKey
    from sunshower.experiments.experiment import Sink as Sink
    from sunshower.experiments.experiment import numbers as numbers
    from sunshower.experiments.experiment import relay as relay
    from sunshower.experiments.experiment import relayed as relayed
    from sunshower.experiments.experiment import run_experiment as run_experiment
    from sunshower.experiments.fault_kinds import acker as acker
    from sunshower.experiments.fault_kinds import anybody as anybody
    from sunshower.experiments.fault_kinds import away as away
    from sunshower.experiments.fault_kinds import component as component
    from sunshower.experiments.fault_kinds import cut as cut
    from sunshower.experiments.fault_kinds import errors as errors
    from sunshower.experiments.fault_kinds import expire as expire
    from sunshower.experiments.fault_kinds import isolate as isolate
    from sunshower.experiments.fault_kinds import kill as kill
    from sunshower.experiments.fault_kinds import lossy as lossy
    from sunshower.experiments.fault_kinds import master as master
    from sunshower.experiments.fault_kinds import node as node
    from sunshower.experiments.fault_kinds import outage as outage
    from sunshower.experiments.fault_kinds import pause as pause
    from sunshower.experiments.fault_kinds import slow as slow
    from sunshower.experiments.fault_kinds import spout as spout
    from sunshower.experiments.fault_kinds import task as task
    from sunshower.experiments.fault_kinds import worker as worker
    from sunshower.experiments.fault_plan import Step as Step
    from sunshower.experiments.fault_plan import at as at
    from sunshower.experiments.fault_plan import drain as drain
    from sunshower.experiments.fault_plan import every as every
    from sunshower.experiments.fault_plan import phases as phases
    from sunshower.experiments.fault_plan import quiet as quiet
    from sunshower.experiments.fault_plan import random as random
    from sunshower.experiments.fault_plan import rebalance as rebalance
    from sunshower.experiments.fault_plan import until as until
    from sunshower.experiments.outcome import Ending as Ending
    from sunshower.experiments.outcome import Facts as Facts
    from sunshower.experiments.outcome import Finding as Finding
    from sunshower.experiments.outcome import Outcome as Outcome
    from sunshower.experiments.outcome import Recovery as Recovery
    from sunshower.experiments.outcome import Verdict as Verdict
    from sunshower.runtime.events.event_log import What as What
    from sunshower.runtime.plan import Layout as Layout


if not TYPE_CHECKING:
    __all__, __getattr__ = exports(__name__)
