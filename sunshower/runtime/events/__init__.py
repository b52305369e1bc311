"""The event log, metrics, health of tasks, traces, logging limits and fault injection."""
