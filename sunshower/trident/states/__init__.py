"""States that survive batches and know which batch wrote them."""
