"""Spark's schemas, its states, and folders and tables of committed batches."""
