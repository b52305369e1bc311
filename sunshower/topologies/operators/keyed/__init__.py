"""The state of each key of a stream, and functions that read and change it.

Read `keyed_store` (values of a task, written batch by batch, and the calls that change them),
`stored_values` (how values are stored) and `process_settings` (the declaration).
"""
