"""What experiments read from an event log: tuples, batches, accounts, figures, the outcome."""
