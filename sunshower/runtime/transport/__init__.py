"""Moves batches between tasks.

In the order of their way: `output_streams` gives each record an edge, `routing` chooses its tasks,
`channels` limits what is under way to each of them. Between two workers a batch is a frame
in a packet (`packets`) on a link (`peer_link`).
"""
