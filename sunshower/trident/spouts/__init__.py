"""Sources of batches.

Read `port` (the kinds of spouts), `partition_emitters` (which emit a batch of each partition again
as it was), `ordinary_spouts` (adapters), `bounds` (sizes of batches) and `reached_times`.
"""
