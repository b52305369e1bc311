"""Processes batches with PySpark: here, on a Ray cluster through RayDP, or on a cluster of Spark.

`steps` declares a step (`spark(…)`), and submits its batches; `bolt` does so for a stream of
records. `sessions/spark_port` is the port that they use, `sessions/session_host` runs jobs in a
session, and `job` runs one of them and converts the errors of Java. `tables` writes what is
committed. Read `steps`, `sessions/spark_port`, `job`, `sessions/session_host`.
"""

from sunshower.arrow.record_columns import Digits as Digits
from sunshower.installed import exports
from sunshower.spark_integration.bolt import SparkBatchBolt as SparkBatchBolt
from sunshower.spark_integration.sessions.local_spark import LocalSpark as LocalSpark
from sunshower.spark_integration.sessions.spark_cluster import SparkCluster as SparkCluster
from sunshower.spark_integration.sessions.spark_connect import SparkConnect as SparkConnect
from sunshower.spark_integration.sessions.spark_on_ray import RayDPSpark as RayDPSpark
from sunshower.spark_integration.sessions.spark_port import BatchInfo as BatchInfo
from sunshower.spark_integration.steps import parquet as parquet
from sunshower.spark_integration.steps import saved_as as saved_as
from sunshower.spark_integration.steps import spark as spark
from sunshower.spark_integration.steps import spark_sql as spark_sql
from sunshower.spark_integration.tables.kafka_rows import KafkaRows as KafkaRows
from sunshower.spark_integration.tables.lake_table import delta as delta
from sunshower.spark_integration.tables.lake_table import iceberg as iceberg
from sunshower.spark_integration.tables.tables import SparkState as SparkState
from sunshower.spark_integration.tables.tables import batches_in as batches_in
from sunshower.spark_integration.tables.tables import spark_state as spark_state
from sunshower.spark_integration.tables.tables import table as table

__all__, _ = exports(__name__)
