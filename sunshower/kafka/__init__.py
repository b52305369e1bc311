"""Reads from Kafka and writes to it.

`spout` joins the parts of a reader: `options` chooses how tasks share partitions and where offsets
are stored, `consuming` reads, decodes and tracks messages, `partitions` lists partitions and
commits offsets. `exactly_once/batch_spouts` does the same for batches. `producing` sends, `formats`
decodes keys and values, `zookeeper` has the options of Storm's spout. Read `spout`, then
`consuming/partition_reader`, `state/log_progress` and `consuming/start_position`.
"""

from sunshower.installed import exports
from sunshower.kafka.consuming.decoding import KafkaRecord as KafkaRecord
from sunshower.kafka.consuming.decoding import Received as Received
from sunshower.kafka.consuming.start_position import StartPosition as StartPosition
from sunshower.kafka.consuming.start_position import StartTime as StartTime
from sunshower.kafka.exactly_once.batch_messages import KafkaMessages as KafkaMessages
from sunshower.kafka.exactly_once.batch_spouts import BatchOptions as BatchOptions
from sunshower.kafka.exactly_once.batch_spouts import KafkaOpaque as KafkaOpaque
from sunshower.kafka.exactly_once.batch_spouts import KafkaRanges as KafkaRanges
from sunshower.kafka.exactly_once.batch_spouts import KafkaTransactional as KafkaTransactional
from sunshower.kafka.exactly_once.deduplicate import deduplicate as deduplicate
from sunshower.kafka.exactly_once.offsets_with_results import (
    OffsetsWithResults as OffsetsWithResults,
)
from sunshower.kafka.exactly_once.offsets_with_results import ResultsBolt as ResultsBolt
from sunshower.kafka.formats import Avro as Avro
from sunshower.kafka.formats import Bytes as Bytes
from sunshower.kafka.formats import Json as Json
from sunshower.kafka.formats import JsonSchema as JsonSchema
from sunshower.kafka.formats import MessagePack as MessagePack
from sunshower.kafka.formats import Protobuf as Protobuf
from sunshower.kafka.formats import Text as Text
from sunshower.kafka.options import Guarantee as Guarantee
from sunshower.kafka.options import Interceptor as Interceptor
from sunshower.kafka.options import KafkaOptions as KafkaOptions
from sunshower.kafka.options import by_broker_group as by_broker_group
from sunshower.kafka.options import by_index as by_index
from sunshower.kafka.options import by_metadata as by_metadata
from sunshower.kafka.options import in_kafka as in_kafka
from sunshower.kafka.partitions.ports import Committed as Committed
from sunshower.kafka.partitions.ports import Partition as Partition
from sunshower.kafka.partitions.ports import RebalanceListener as RebalanceListener
from sunshower.kafka.producing.kafka_bolt import KafkaBolt as KafkaBolt
from sunshower.kafka.producing.kafka_bolt import SoleWriterBolt as SoleWriterBolt
from sunshower.kafka.producing.kafka_bolt import TransactionalKafkaBolt as TransactionalKafkaBolt
from sunshower.kafka.producing.producer import Message as Message
from sunshower.kafka.producing.producer import Producer as Producer
from sunshower.kafka.spout import KafkaSpout as KafkaSpout
from sunshower.kafka.zookeeper.group import StreamThread as StreamThread
from sunshower.kafka.zookeeper.group import by_range_of_threads as by_range_of_threads
from sunshower.kafka.zookeeper.group import round_robin_of_threads as round_robin_of_threads
from sunshower.kafka.zookeeper.options import ByZooKeeperGroup as ByZooKeeperGroup
from sunshower.kafka.zookeeper.options import PlainOffsets as PlainOffsets
from sunshower.kafka.zookeeper.options import SqliteOffsets as SqliteOffsets
from sunshower.kafka.zookeeper.options import StormOffsets as StormOffsets
from sunshower.kafka.zookeeper.options import ZooKeeperBrokers as ZooKeeperBrokers
from sunshower.state.zookeeper_client import Tls as Tls

__all__, _ = exports(__name__)
