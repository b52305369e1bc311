"""Exactly-once processing: streams of batches, compiled into ordinary spouts and bolts."""

from typing import TYPE_CHECKING

from sunshower.installed import exports

if TYPE_CHECKING:
    from sunshower.state.zookeeper_client import Tls as Tls
    from sunshower.topologies.operators.aggregators import Aggregator as Aggregator
    from sunshower.topologies.operators.aggregators import CombinerAggregator as CombinerAggregator
    from sunshower.topologies.operators.aggregators import ReducerAggregator as ReducerAggregator
    from sunshower.topologies.operators.aggregators import average as average
    from sunshower.topologies.operators.aggregators import collect as collect
    from sunshower.topologies.operators.aggregators import count as count
    from sunshower.topologies.operators.aggregators import count_distinct as count_distinct
    from sunshower.topologies.operators.aggregators import max_ as max_
    from sunshower.topologies.operators.aggregators import min_ as min_
    from sunshower.topologies.operators.aggregators import reduce as reduce
    from sunshower.topologies.operators.aggregators import sum_ as sum_
    from sunshower.topologies.operators.port import Attempt as Attempt
    from sunshower.topologies.operators.port import Operator as Operator
    from sunshower.topologies.operators.ranking import first as first
    from sunshower.topologies.operators.ranking import last as last
    from sunshower.topologies.operators.ranking import top as top
    from sunshower.topologies.operators.states import MapState as MapState
    from sunshower.topologies.operators.states import StateFactory as StateFactory
    from sunshower.topologies.operators.states import StateKind as StateKind
    from sunshower.topologies.operators.windows.window_kinds import Window as Window
    from sunshower.topologies.operators.windows.window_kinds import sliding as sliding
    from sunshower.topologies.operators.windows.window_kinds import tumbling as tumbling
    from sunshower.trident.declaration.declare import batches as batches
    from sunshower.trident.declaration.stage_builder import InMemory as InMemory
    from sunshower.trident.declaration.stage_builder import InSqlite as InSqlite
    from sunshower.trident.declaration.stage_builder import InZooKeeper as InZooKeeper
    from sunshower.trident.declaration.streams import BatchStream as BatchStream
    from sunshower.trident.declaration.streams import GroupedBatches as GroupedBatches
    from sunshower.trident.spouts.bounds import Bounds as Bounds
    from sunshower.trident.spouts.fixed import FeederBatchSpout as FeederBatchSpout
    from sunshower.trident.spouts.fixed import FixedBatchSpout as FixedBatchSpout
    from sunshower.trident.spouts.fixed import TextFileBatches as TextFileBatches
    from sunshower.trident.spouts.ordinary_spouts import PlainSpout as PlainSpout
    from sunshower.trident.spouts.ordinary_spouts import PolledSpout as PolledSpout
    from sunshower.trident.spouts.port import BatchSpout as BatchSpout
    from sunshower.trident.spouts.port import OpaquePartitionedSpout as OpaquePartitionedSpout
    from sunshower.trident.spouts.port import PartitionedSpout as PartitionedSpout
    from sunshower.trident.spouts.port import SpoutKind as SpoutKind
    from sunshower.trident.spouts.port import TridentSpout as TridentSpout
    from sunshower.trident.stages.plan import Skip as Skip

if not TYPE_CHECKING:
    __all__, __getattr__ = exports(__name__)
