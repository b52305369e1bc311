"""`sunshower profile`: profiles running workers."""
