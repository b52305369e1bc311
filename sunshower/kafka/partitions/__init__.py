"""Which partitions exist, which task reads them, and where committed offsets are kept."""
