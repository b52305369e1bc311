"""Spout tasks.

Read `spout_task` (a tree for each record), `source` (the port of the four kinds of sources) and one
of them: `records_source`, `log_source`, `next_tuple_source`, `request_source`. `replays` emits
failed messages again, which `retry_queue` holds until then; `watermark_sender` sends event time.
"""
