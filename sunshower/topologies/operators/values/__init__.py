"""What aggregates compute of values: their order, and their exact sums."""
