"""Rows of running totals that replace earlier ones, and the totals computed from them."""
