"""The state of each key of a stream, and functions that read and change it.

Read `key_states` (what a function is handed: a value, a list or a map), `keyed_process` (its
calls), `keyed_store` (values of a task, written batch by batch), `long_values` (values that are
lent to calls), `patterns` (matches in records that come in order) and `process_settings` (the
declaration).
"""
