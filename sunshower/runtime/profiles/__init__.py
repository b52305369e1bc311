"""Profiles of running workers: stacks as texts, and the shares of a component's time."""
