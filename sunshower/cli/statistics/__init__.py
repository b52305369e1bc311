"""The statistics in `status`, `status --json` and `top`: windows, latencies, capacity, failures."""
