"""Profiles of running workers: stacks as texts, and where a component's time goes."""
