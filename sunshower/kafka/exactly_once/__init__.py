"""Processes each record of Kafka once.

`batch_spouts` is for programs of batches; `deduplicate` (by keys) and `offsets_with_results` (in
one transaction) are for ordinary bolts.
"""
