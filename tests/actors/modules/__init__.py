"""Tests of the modules of a program, in workers and in one process."""
