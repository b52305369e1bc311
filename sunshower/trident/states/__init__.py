"""States that survive batches, and store which batch wrote them.

Read `stored_map` (the marks, and the values of a batch written in one put), then `factories`, which
open a state in each store and move it to another number of tasks.
"""
