"""Begins, commits and retries batches in order, and stores the progress.

Read `attempts` (what components exchange), `batch_scheduler` (which batch begins, commits or is
retried), `master_batch_coordinator` (which carries that out) and `transactional_log`.
"""
