"""What a user declares: components and streams, from which `Topology` makes an immutable graph.

Read `components` (spouts, bolts and their collectors), `signatures` and `outputs` (what their
annotations say), `groupings`, `streams` (the methods that a program calls) and `topology` (which
checks the declarations); `graph` is what the runtime gets. Operators are in `operators`. `sources`,
`sinks` and `logs` are components for users; `async_functions` and `async_calls` run async ones.
"""
