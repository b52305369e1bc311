"""The report of an experiment: one page without a network, and each of its charts as files."""
