"""Storm's guaranteed processing on Ray: spouts, bolts and tuple trees, in plain Python."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sunshower.config import Config as Config
from sunshower.config import Resources as Resources
from sunshower.config import between as between
from sunshower.errors import Unavailable as Unavailable
from sunshower.failures import Cause as Cause
from sunshower.failures import Failure as Failure
from sunshower.installed import exports
from sunshower.secret import Secret as Secret
from sunshower.topologies.async_functions import asynchronous as asynchronous
from sunshower.topologies.components import BatchBolt as BatchBolt
from sunshower.topologies.components import Bolt as Bolt
from sunshower.topologies.components import Collector as Collector
from sunshower.topologies.components import Context as Context
from sunshower.topologies.components import Derived as Derived
from sunshower.topologies.components import OnStream as OnStream
from sunshower.topologies.components import Spout as Spout
from sunshower.topologies.components import SpoutCollector as SpoutCollector
from sunshower.topologies.components import Tuple as Tuple
from sunshower.topologies.components import batch as batch
from sunshower.topologies.graph import Graph
from sunshower.topologies.logs import LogSpout as LogSpout
from sunshower.topologies.logs import Polled as Polled
from sunshower.topologies.logs import Unreadable as Unreadable
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
from sunshower.topologies.operators.keyed.key_states import KeyList as KeyList
from sunshower.topologies.operators.keyed.key_states import KeyMap as KeyMap
from sunshower.topologies.operators.keyed.key_states import KeyState as KeyState
from sunshower.topologies.operators.keyed.keyed_store import KeyValueState as KeyValueState
from sunshower.topologies.operators.keyed.patterns import Match as Match
from sunshower.topologies.operators.keyed.patterns import PatternStep as PatternStep
from sunshower.topologies.operators.ranking import first as first
from sunshower.topologies.operators.ranking import last as last
from sunshower.topologies.operators.ranking import top as top
from sunshower.topologies.operators.windows.window_kinds import sessions as sessions
from sunshower.topologies.operators.windows.window_kinds import sliding as sliding
from sunshower.topologies.operators.windows.window_kinds import tumbling as tumbling
from sunshower.topologies.outputs import DirectStream as DirectStream
from sunshower.topologies.previews import set_runner
from sunshower.topologies.retry import DeadLetter as DeadLetter
from sunshower.topologies.retry import Retry as Retry
from sunshower.topologies.sinks import JsonLines as JsonLines
from sunshower.topologies.sinks import Stdout as Stdout
from sunshower.topologies.sources import Counter as Counter
from sunshower.topologies.sources import Line as Line
from sunshower.topologies.sources import Number as Number
from sunshower.topologies.sources import Records as Records
from sunshower.topologies.sources import TextFiles as TextFiles
from sunshower.topologies.streams import Stream as Stream
from sunshower.topologies.topology import Topology as Topology

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster as RayCluster
    from sunshower.kafka import Json as Json
    from sunshower.kafka import KafkaBolt as KafkaBolt
    from sunshower.kafka import KafkaSpout as KafkaSpout
    from sunshower.kafka import KafkaTransactional as KafkaTransactional
    from sunshower.runtime.inline import run_inline as run_inline
    from sunshower.runtime.plan import Layout as Layout
    from sunshower.spark_integration import BatchInfo as BatchInfo
    from sunshower.spark_integration import LocalSpark as LocalSpark
    from sunshower.spark_integration import RayDPSpark as RayDPSpark
    from sunshower.spark_integration import spark as spark
    from sunshower.spark_integration import table as table
    from sunshower.state import MemoryState as MemoryState
    from sunshower.state import PostgresState as PostgresState
    from sunshower.state import RedisState as RedisState
    from sunshower.state import SqliteState as SqliteState
    from sunshower.state import StaticState as StaticState
    from sunshower.state import ZooKeeperState as ZooKeeperState
    from sunshower.trident import batches as batches

__version__ = "0.1.0"


def _run_until(graph: Graph, is_enough: Callable[[], bool], within_s: float) -> str:
    from sunshower.runtime.inline import run_until

    return run_until(graph, is_enough, within_s)


set_runner(_run_until)  # of `stream.show()`

if not TYPE_CHECKING:  # Ray takes a second, NumPy a tenth, and Kafka and Spark need their extras
    __all__, __getattr__ = exports(__name__)
