"""Tracks tuple trees: completes them, and fails those that were lost.

Read `incarnations`, `ids` and `edges` (the XOR arithmetic), `batch` (records with the trees that
they belong to), `ledger` (open, complete and failed trees of an acker), `acker_task`, and `pending`
(a spout task's table of open trees, with its deadlines). `reports` collects what tasks report to
ackers; `congestion_control` limits the open trees.
"""
