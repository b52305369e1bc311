"""Operators on the rows of a batch; those between two repartitionings form a stage, one bolt.

Read `plan` (stages, their inputs and outputs, and how rows are shared), then `persisting` (states,
written in the commit phase) and `batch_windows`.
"""
