"""The tasks of a batch topology: they process batches and report on them."""
