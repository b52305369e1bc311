"""Begins, commits and retries batches in order, and stores the progress."""
