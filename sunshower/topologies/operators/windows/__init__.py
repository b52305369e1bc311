"""Windows of both kinds of stream, and the event times and watermarks that end them.

Read `window_kinds` (what a user declares), `event_times` (exact times), `watermarks` (how far all
sources are), `window_operator` (rows wait until a watermark comes; timers, too), `ordered_process`
(records in the order of event time), `panes`, `aggregated_windows` (with results before and after
the end), `session_windows` and `declaring`.
"""
