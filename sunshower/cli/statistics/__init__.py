"""What `status`, `status --json` and `top` show of a snapshot: windows, latencies, load, places."""
