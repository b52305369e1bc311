"""What the code in a worker prints, for the log of its topology."""
