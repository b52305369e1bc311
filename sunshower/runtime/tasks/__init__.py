"""Runs tasks: scheduling, calls of user code, supervision, ticks."""
