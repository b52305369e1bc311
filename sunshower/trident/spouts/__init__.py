"""Where batches come from: the port, and spouts to start with."""
