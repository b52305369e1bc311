"""What Ray says about the nodes of its cluster, and on which of them workers are created."""
