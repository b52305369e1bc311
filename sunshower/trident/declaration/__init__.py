"""Declares streams of batches, and compiles them into stages.

Read `declare` (the function `batches`), `streams` (what a program calls on its result),
`stateful` (states, windows, and what these follow in event time) and `stage_builder` (stages under
construction, and the spout and bolts that they become).
"""
