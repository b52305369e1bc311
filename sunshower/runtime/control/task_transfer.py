"""The module under whose name savepoints hold a TaskTransfer; separate because they are stored."""

from sunshower.runtime.tasks.task_transfer import TaskTransfer

__all__ = ["TaskTransfer"]
