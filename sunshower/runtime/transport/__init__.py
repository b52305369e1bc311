"""Moves batches between tasks: routing, channels, credits, frames, packets and peer links."""
