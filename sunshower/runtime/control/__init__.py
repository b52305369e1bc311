"""The master (Storm: Nimbus).

Read `lifecycle` (states and commands of a topology), `master`, and `master_state`, from which the
next master continues. `failure_detector` finds silent workers, `placement` and `plan_changes` are
rebalances and upgrades, `nodes` chooses machines, `savepoint` is what a later run continues from.
"""
