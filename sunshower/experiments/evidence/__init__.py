"""The evidence from an event log: tuples, batches, accounts, figures, the outcome."""
