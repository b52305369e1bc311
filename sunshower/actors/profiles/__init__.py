"""Records what running workers do: by py-spy, or by a thread in the worker's process."""
