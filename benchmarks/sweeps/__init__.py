"""Measurements over a range of one number, latency under light load, memory, start and recovery."""
