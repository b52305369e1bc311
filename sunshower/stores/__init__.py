"""Where a running topology remembers what must outlive its processes: one port and its bodies."""
