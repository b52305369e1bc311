"""Runs a topology: pure algorithms, without Ray, clock, socket or randomness of their own."""
