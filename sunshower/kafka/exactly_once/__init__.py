"""Exactly-once processing: `batch_spouts` for programs of batches; `deduplicate` by keys, and
`offsets_with_results` in one transaction, for ordinary bolts."""
