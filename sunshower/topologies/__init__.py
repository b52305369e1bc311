"""Declares topologies: spouts, bolts and groupings, checked on declaration, then frozen."""
