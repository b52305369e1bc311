"""The page docs/PERFORMANCE.md and its plots, generated from the results file."""
