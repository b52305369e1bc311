"""Exactly-once processing: streams of batches, compiled into ordinary spouts and bolts."""

from typing import TYPE_CHECKING, Any
from warnings import warn

from sunshower.installed import lazy_exports

if TYPE_CHECKING:
    from sunshower.state.zookeeper_client import Tls
    from sunshower.topologies.operators.aggregators import (
        Aggregator,
        CombinerAggregator,
        ReducerAggregator,
        average,
        collect,
        count,
        max_,
        min_,
        reduce,
        sum_,
    )
    from sunshower.topologies.operators.port import Attempt, Operator
    from sunshower.topologies.operators.ranking import top
    from sunshower.topologies.operators.states import MapState, StateFactory, StateKind
    from sunshower.topologies.operators.windows.window_kinds import Window, sliding, tumbling
    from sunshower.trident.declaration.declare import batches
    from sunshower.trident.declaration.stage_builder import InMemory, InSqlite, InZooKeeper
    from sunshower.trident.declaration.streams import BatchStream, GroupedBatches
    from sunshower.trident.spouts.bounds import Bounds
    from sunshower.trident.spouts.fixed import FeederBatchSpout, FixedBatchSpout
    from sunshower.trident.spouts.ordinary_spouts import PlainSpout, PolledSpout
    from sunshower.trident.spouts.port import (
        BatchSpout,
        OpaquePartitionedSpout,
        PartitionedSpout,
        SpoutKind,
        TridentSpout,
    )
    from sunshower.trident.spouts.text import TextFileBatches
    from sunshower.trident.stages.plan import Skip
    from sunshower.trident.states.factories import MemoryState as MemoryState
    from sunshower.trident.states.factories import PostgresState as PostgresState
    from sunshower.trident.states.factories import RedisState as RedisState
    from sunshower.trident.states.factories import SqliteState as SqliteState
    from sunshower.trident.states.factories import StaticState as StaticState
    from sunshower.trident.states.factories import ZooKeeperState as ZooKeeperState

__all__ = [
    "Aggregator",
    "Attempt",
    "BatchSpout",
    "BatchStream",
    "Bounds",
    "CombinerAggregator",
    "FeederBatchSpout",
    "FixedBatchSpout",
    "GroupedBatches",
    "InMemory",
    "InSqlite",
    "InZooKeeper",
    "MapState",
    "OpaquePartitionedSpout",
    "Operator",
    "PartitionedSpout",
    "PlainSpout",
    "PolledSpout",
    "ReducerAggregator",
    "Skip",
    "SpoutKind",
    "StateFactory",
    "StateKind",
    "TextFileBatches",
    "Tls",
    "TridentSpout",
    "Window",
    "average",
    "batches",
    "collect",
    "count",
    "max_",
    "min_",
    "reduce",
    "sliding",
    "sum_",
    "top",
    "tumbling",
]

_STATES = (  # names of releases before, which the next one does not have
    *("MemoryState", "PostgresState", "RedisState", "SqliteState", "StaticState"),
    "ZooKeeperState",
)

if not TYPE_CHECKING:
    _get = lazy_exports(
        __name__,
        {
            "sunshower.state.zookeeper_client": "Tls",
            "sunshower.topologies.operators.aggregators": "Aggregator CombinerAggregator "
            "ReducerAggregator average collect count max_ min_ reduce sum_",
            "sunshower.topologies.operators.port": "Attempt Operator",
            "sunshower.topologies.operators.ranking": "top",
            "sunshower.topologies.operators.states": "MapState StateFactory StateKind",
            "sunshower.topologies.operators.windows.window_kinds": "Window sliding tumbling",
            "declaration.declare": "batches",
            "declaration.stage_builder": "InMemory InSqlite InZooKeeper",
            "declaration.streams": "BatchStream GroupedBatches",
            "spouts.bounds": "Bounds",
            "spouts.fixed": "FeederBatchSpout FixedBatchSpout",
            "spouts.ordinary_spouts": "PlainSpout PolledSpout",
            "spouts.port": "BatchSpout OpaquePartitionedSpout PartitionedSpout SpoutKind "
            "TridentSpout",
            "spouts.text": "TextFileBatches",
            "stages.plan": "Skip",
        },
    )

    def __getattr__(name: str) -> Any:
        if name not in _STATES:
            return _get(name)
        from sunshower import state

        warn(
            f"sunshower.trident.{name} is sunshower.state.{name} now; the old name goes with the "
            "next release",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(state, name)
