"""The master (Storm: Nimbus).

Read `events`, `lifecycle` (the states, and which command is possible in which), `master`, which
applies the events, and `master_state`, from which the next master continues. `failure_detector`
finds silent workers, `placement` and `plan_changes` are rebalances and upgrades, `nodes` chooses
machines, `savepoint` is what a later run continues from.
"""
