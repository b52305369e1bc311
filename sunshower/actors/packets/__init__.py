"""Packets between the workers of a run: sockets, and what sends over them."""
