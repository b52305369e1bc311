"""Checkers: each computes a verdict from a history."""
