"""Sources of batches: the port, and the spouts that implement it."""
