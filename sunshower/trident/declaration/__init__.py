"""Compiles a declared program of batches into stages."""
