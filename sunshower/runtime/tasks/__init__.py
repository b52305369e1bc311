"""Runs tasks: scheduling, calls of user code, supervision.

Read `wiring` (what a worker consists of), `task_scheduler` (which task runs next), `spouts` and
`bolts`, `report_router` (reports to ackers, verdicts, losses), then `supervision` (what happens
after errors that no single tuple caused) and `user_code` (how errors name their place).
`flight_recorder` finds the tuple that killed a worker; `task_transfer` is what moves with a task.
"""
