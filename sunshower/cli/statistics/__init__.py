"""What `status`, `status --json` and `top` show: windows, latencies, capacity, failures by place."""
