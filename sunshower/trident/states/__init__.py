"""What outlives a batch: states that know which batch wrote them."""
