"""Keyed state: what a task stores under keys."""
