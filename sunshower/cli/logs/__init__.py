"""`sunshower logs`: the log of a running topology."""
