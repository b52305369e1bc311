"""Endurance: what holds under kills, behind a slow bolt, and with poison in the stream."""
