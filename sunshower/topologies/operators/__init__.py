"""Operators on records: functions, aggregators, totals, used on ordinary streams and in batches.

Read `port` (operators) and `states`, `steps` (functions), `aggregators` and `aggregating`, `totals`
(aggregates in a state), `stages` (operators while they are declared), `generated_stages` (their
functions as one) and `compiled_stage` (the bolt that runs them). `updates` are rows of totals that
replace earlier ones; `columns` computes on Arrow tables. Then `keyed`, `windows` and `joins`.
"""
