"""Processes batches with PySpark, on this machine or on the Ray cluster through RayDP.

`steps` declares a step (`spark(…)`), and submits its batches; `bolt` does so for a stream of
records. `sessions/spark_port` is the port that they use, `sessions/session_host` runs jobs in a
session, and `job` runs one of them and converts the errors of Java. `tables` writes what is
committed. Read `steps`, `sessions/spark_port`, `job`, `sessions/session_host`.
"""

from sunshower.arrow.record_columns import Digits
from sunshower.spark_integration.bolt import SparkBatchBolt
from sunshower.spark_integration.sessions.local_spark import LocalSpark
from sunshower.spark_integration.sessions.spark_on_ray import RayDPSpark
from sunshower.spark_integration.sessions.spark_port import BatchInfo
from sunshower.spark_integration.steps import parquet, saved_as, spark, spark_sql
from sunshower.spark_integration.tables.kafka_rows import KafkaRows
from sunshower.spark_integration.tables.lake_table import delta, iceberg
from sunshower.spark_integration.tables.tables import SparkState, batches_in, spark_state, table

__all__ = [
    "BatchInfo",
    "Digits",
    "KafkaRows",
    "LocalSpark",
    "RayDPSpark",
    "SparkBatchBolt",
    "SparkState",
    "batches_in",
    "delta",
    "iceberg",
    "parquet",
    "saved_as",
    "spark",
    "spark_sql",
    "spark_state",
    "table",
]
