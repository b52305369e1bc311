"""Tracks tuple trees: ids, the ackers' ledger, pending trees, deadlines and losses."""
