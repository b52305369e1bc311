"""TaskTransfer, by the name that savepoints hold.

Every process imports it from here: a savepoint is written only if that name leads to the class.
"""

from sunshower.runtime.tasks.task_transfer import TaskTransfer

__all__ = ["TaskTransfer"]
