"""Windows over ordinary streams, and the event times and watermarks that end them.

Read `window_kinds` (what a user declares), `event_times` (exact times), `watermarks` (how far all
sources are), `window_operator` (rows wait until a watermark comes; timers, too),
`aggregated_windows` (panes), `session_windows`, `numbered_results` (before and after the end) and
`declaring`.
"""
