"""Spout tasks.

Read `spout_task` (a tree for each record), `source` (the port of the four kinds of sources) and one
of them: `records_source`, `log_source`, `next_tuple_source`, `request_source`. `retry_queue` holds
failed messages until they are emitted again; `watermark_sender` sends event time.
"""
