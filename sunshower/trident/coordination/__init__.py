"""Decides which batch begins, commits or is retried, and stores the decision."""
