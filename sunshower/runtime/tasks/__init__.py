"""Runs tasks: scheduling, calls of user code, supervision.

Read `task_scheduler` (which task runs next), `spouts` and `bolts`, then `supervision` (what happens
after errors that no single tuple caused) and `user_code` (how errors name their place).
"""
