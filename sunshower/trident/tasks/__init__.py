"""The tasks of a batch topology.

`emitter_runner` emits a task's share of each batch; `stage_bolt` counts the parts of a batch,
processes them, and commits.
"""
