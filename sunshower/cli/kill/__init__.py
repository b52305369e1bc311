"""`sunshower kill`: end a topology, with or without a savepoint."""
