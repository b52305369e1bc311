"""Storage that outlives processes: the ports for trees, states and bytes, with their adapters."""
