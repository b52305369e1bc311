"""Windows over ordinary streams, and the event times and watermarks that end them.

Read `window_kinds` (what a user declares), `event_times` (exact times), `watermarks` (how far all
sources are), `window_operator` (rows wait until a watermark comes; timers, too), `ordered_process`
(records in the order of event time), `aggregated_windows` (panes and sessions) and `declaring`.
"""
