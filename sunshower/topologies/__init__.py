"""What to run: spouts, bolts and their groupings, checked as they are declared, then frozen."""
