"""Which partitions exist, which task reads them, and where offsets are committed."""
