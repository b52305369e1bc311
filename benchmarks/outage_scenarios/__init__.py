"""One module for each kind of outage; see benchmarks/outages.py."""
