"""Keyed state: the values that a task stores under keys."""
