"""Exactly once: streams of batches, compiled into ordinary spouts and bolts."""

from sunshower.trident.aggregators import (
    Aggregator,
    CombinerAggregator,
    ReducerAggregator,
    average,
    collect,
    count,
    max_,
    min_,
    sum_,
)
from sunshower.trident.attempts import Attempt
from sunshower.trident.declare import batches
from sunshower.trident.grouped import GroupedBatches
from sunshower.trident.persisted import BatchState, StaticState
from sunshower.trident.places import InMemory, InSqlite, InZooKeeper
from sunshower.trident.spouts.port import SpoutKind, TridentSpout
from sunshower.trident.stages.plan import Skip
from sunshower.trident.states.port import MapState, StateFactory, StateKind
from sunshower.trident.streams import BatchStream
from sunshower.trident.windows import Window, sliding, tumbling

__all__ = [
    "Aggregator",
    "Attempt",
    "BatchState",
    "BatchStream",
    "CombinerAggregator",
    "GroupedBatches",
    "InMemory",
    "InSqlite",
    "InZooKeeper",
    "MapState",
    "ReducerAggregator",
    "Skip",
    "SpoutKind",
    "StateFactory",
    "StateKind",
    "StaticState",
    "TridentSpout",
    "Window",
    "average",
    "batches",
    "collect",
    "count",
    "max_",
    "min_",
    "sliding",
    "sum_",
    "tumbling",
]
