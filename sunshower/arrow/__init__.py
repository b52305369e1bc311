"""Converts records to Arrow tables and back, for Spark and Parquet: see `record_columns`."""
