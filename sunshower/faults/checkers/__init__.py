"""Checkers: from a history to a verdict, without looking at anything else."""
