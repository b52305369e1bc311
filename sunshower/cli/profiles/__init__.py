"""`sunshower profile`: where the time of a running worker goes."""
