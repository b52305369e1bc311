"""Real servers for development and tests: Kafka and ZooKeeper, fetched, started and ended."""

from sunshower.dev.jars import spark_delta, spark_iceberg, spark_kafka, spark_s3
from sunshower.dev.kafka import Kafka
from sunshower.dev.zookeeper import ZooKeeper

__all__ = ["Kafka", "ZooKeeper", "spark_delta", "spark_iceberg", "spark_kafka", "spark_s3"]
