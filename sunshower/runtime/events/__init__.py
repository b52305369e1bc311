"""The event log, metrics, logging limits and fault injection."""
