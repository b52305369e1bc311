"""States that survive batches, and store which batch wrote them."""
