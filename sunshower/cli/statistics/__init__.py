"""What `status`, `status --json` and `top` show: windows, latencies, capacity, where trees fail."""
