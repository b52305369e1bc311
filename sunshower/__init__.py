"""Storm's guaranteed processing on Ray: spouts, bolts and tuple trees, in plain Python."""

from typing import TYPE_CHECKING

from sunshower.config import Config, Resources, between
from sunshower.errors import Unavailable
from sunshower.failures import Cause, Failure
from sunshower.installed import lazy_exports
from sunshower.secret import Secret
from sunshower.topologies.async_functions import asynchronous
from sunshower.topologies.components import (
    BatchBolt,
    Bolt,
    Collector,
    Context,
    Derived,
    OnStream,
    Spout,
    SpoutCollector,
    Tuple,
    batch,
)
from sunshower.topologies.logs import LogSpout, Polled, Unreadable
from sunshower.topologies.operators.aggregators import (
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
from sunshower.topologies.operators.keyed.key_states import KeyList, KeyMap, KeyState
from sunshower.topologies.operators.keyed.keyed_store import KeyValueState
from sunshower.topologies.operators.ranking import top
from sunshower.topologies.operators.windows.window_kinds import sessions, sliding, tumbling
from sunshower.topologies.outputs import DirectStream
from sunshower.topologies.retry import DeadLetter, Retry
from sunshower.topologies.sinks import JsonLines, Stdout
from sunshower.topologies.sources import Counter, Line, Number, Records, TextFiles
from sunshower.topologies.topology import Topology

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster
    from sunshower.kafka import Json, KafkaBolt, KafkaSpout, KafkaTransactional
    from sunshower.runtime.inline import run_inline
    from sunshower.spark_integration import BatchInfo, LocalSpark, RayDPSpark, spark, table
    from sunshower.state import (
        MemoryState,
        PostgresState,
        RedisState,
        SqliteState,
        StaticState,
        ZooKeeperState,
    )
    from sunshower.trident import batches

__version__ = "0.1.0"
__all__ = [
    "BatchBolt",
    "BatchInfo",
    "Bolt",
    "Cause",
    "Collector",
    "CombinerAggregator",
    "Config",
    "Context",
    "Counter",
    "DeadLetter",
    "Derived",
    "DirectStream",
    "Failure",
    "Json",
    "JsonLines",
    "KafkaBolt",
    "KafkaSpout",
    "KafkaTransactional",
    "KeyList",
    "KeyMap",
    "KeyState",
    "KeyValueState",
    "Line",
    "LocalSpark",
    "LogSpout",
    "MemoryState",
    "Number",
    "OnStream",
    "Polled",
    "PostgresState",
    "RayCluster",
    "RayDPSpark",
    "Records",
    "RedisState",
    "ReducerAggregator",
    "Resources",
    "Retry",
    "Secret",
    "Spout",
    "SpoutCollector",
    "SqliteState",
    "StaticState",
    "Stdout",
    "TextFiles",
    "Topology",
    "Tuple",
    "Unavailable",
    "Unreadable",
    "ZooKeeperState",
    "asynchronous",
    "average",
    "batch",
    "batches",
    "between",
    "collect",
    "count",
    "max_",
    "min_",
    "reduce",
    "run_inline",
    "sessions",
    "sliding",
    "spark",
    "sum_",
    "table",
    "top",
    "tumbling",
]

if not TYPE_CHECKING:  # Ray takes a second, NumPy a tenth, and Kafka and Spark need their extras
    __getattr__ = lazy_exports(
        __name__,
        {
            "actors.cluster": "RayCluster",
            "kafka": "Json KafkaBolt KafkaSpout KafkaTransactional",
            "runtime.inline": "run_inline",
            "spark_integration": "BatchInfo LocalSpark RayDPSpark spark table",
            "state": "MemoryState PostgresState RedisState SqliteState StaticState ZooKeeperState",
            "trident": "batches",
        },
    )
