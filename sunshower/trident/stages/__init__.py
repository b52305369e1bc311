"""Operators on the rows of a batch; those between two repartitionings form a stage, one bolt."""
