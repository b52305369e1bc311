"""Spout tasks: records, tables, logs and nextTuple; replay and positions."""
