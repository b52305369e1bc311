"""Turns what a user declares into the stages of a batch topology."""
