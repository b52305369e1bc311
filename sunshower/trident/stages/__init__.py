"""What is done with the rows of a batch: the operators between two repartitionings, in one bolt."""
