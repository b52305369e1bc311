"""Tracks tuple trees: completes them, and fails those that were lost.

Read `ids` (of roots and edges, and the XOR arithmetic), `batch` (records with the trees that they
belong to), `ledger` (open, complete and failed trees of an acker), and `pending` (a spout task's
table of open trees, with its deadlines and its limit). `reports` collects what tasks report to
ackers.
"""
