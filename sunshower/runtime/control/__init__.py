"""The master (Storm: Nimbus).

Read `lifecycle` (states and commands of a topology), `master`, and `master_state`, from which the
next master continues. `failure_detector` finds silent workers, `placement`, `plan_changes` and
`task_transfer` are rebalances and upgrades, `flight_recorder` finds the tuple that killed a worker.
"""
