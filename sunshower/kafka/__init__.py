"""Reads from Kafka and writes to it.

`spout` joins the parts of a reader: `options` chooses how tasks share partitions and where offsets
are stored, `consuming` reads, decodes and tracks messages, `partitions` lists partitions and
commits offsets. `exactly_once/batch_spouts` does the same for batches. `producing` sends, `formats`
decodes keys and values, `zookeeper` has the options of Storm's spout. Read `spout`, then
`consuming/partition_reader`, `consuming/partition_progress` and `consuming/start_position`.
"""

from sunshower.kafka.consuming.decoding import KafkaRecord, Received
from sunshower.kafka.consuming.start_position import StartPosition, StartTime
from sunshower.kafka.exactly_once.batch_spouts import (
    BatchOptions,
    KafkaOpaque,
    KafkaRanges,
    KafkaTransactional,
)
from sunshower.kafka.exactly_once.deduplicate import deduplicate
from sunshower.kafka.exactly_once.offsets_with_results import OffsetsWithResults, ResultsBolt
from sunshower.kafka.formats import Avro, Bytes, Json, MessagePack, Protobuf, Text
from sunshower.kafka.options import (
    Guarantee,
    KafkaOptions,
    by_broker_group,
    by_index,
    by_metadata,
    in_kafka,
)
from sunshower.kafka.partitions.ports import Partition, RebalanceListener
from sunshower.kafka.producing.kafka_bolt import KafkaBolt, SoleWriterBolt, TransactionalKafkaBolt
from sunshower.kafka.producing.producer import Message, Producer
from sunshower.kafka.spout import KafkaSpout
from sunshower.kafka.zookeeper.group import by_range_of_threads, round_robin_of_threads
from sunshower.kafka.zookeeper.options import (
    ByZooKeeperGroup,
    PlainOffsets,
    SqliteOffsets,
    StormOffsets,
    ZooKeeperBrokers,
)
from sunshower.state.zookeeper_client import Tls

__all__ = [
    "Avro",
    "BatchOptions",
    "ByZooKeeperGroup",
    "Bytes",
    "Guarantee",
    "Json",
    "KafkaBolt",
    "KafkaOpaque",
    "KafkaOptions",
    "KafkaRanges",
    "KafkaRecord",
    "KafkaSpout",
    "KafkaTransactional",
    "Message",
    "MessagePack",
    "OffsetsWithResults",
    "Partition",
    "PlainOffsets",
    "Producer",
    "Protobuf",
    "RebalanceListener",
    "Received",
    "ResultsBolt",
    "SoleWriterBolt",
    "SqliteOffsets",
    "StartPosition",
    "StartTime",
    "StormOffsets",
    "Text",
    "Tls",
    "TransactionalKafkaBolt",
    "ZooKeeperBrokers",
    "by_broker_group",
    "by_index",
    "by_metadata",
    "by_range_of_threads",
    "deduplicate",
    "in_kafka",
    "round_robin_of_threads",
]
