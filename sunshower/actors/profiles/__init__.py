"""Profiles running workers: by py-spy, or by a thread in the worker's process."""
