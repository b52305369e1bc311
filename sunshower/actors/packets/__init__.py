"""Packets between the workers of a run: sockets, and the sender."""
