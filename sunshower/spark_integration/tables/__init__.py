"""Tables of committed batches.

`tables` has Parquet folders and the state of a step, `lake_table` Delta Lake and Iceberg;
`kafka_rows` lets Spark read ranges of Kafka offsets.
"""
