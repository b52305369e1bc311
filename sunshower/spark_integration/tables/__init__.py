"""Tables of committed batches: `tables` (Parquet folders, and the state of a step), `lake_table`
(Delta Lake, Iceberg); `kafka_rows` lets Spark read ranges of Kafka offsets."""
