"""Topologies in one thread, on virtual time, with all chance from one seed."""
