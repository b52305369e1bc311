"""The algorithms that run a topology, without Ray, a clock, sockets or random numbers."""
