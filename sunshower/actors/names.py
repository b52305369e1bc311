"""How actors of one topology find each other on Ray, and how they call without waiting."""

from __future__ import annotations

from typing import Any

NAMESPACE = "sunshower"


def master_name(run: str) -> str:
    """The name of a run's master."""
    return f"{run}/master"


def worker_name(run: str, worker: int) -> str:
    """The name of one of a run's workers."""
    return f"{run}/worker-{worker}"


def plan_key(run: str) -> str:
    """Where the store has a run's plan."""
    return f"{run}/plan"


def book_key(run: str) -> str:
    """Where the store has the book of a run's master."""
    return f"{run}/book"


def silent(method: Any) -> Any:
    """An actor's method, to be called without ever hearing of the outcome."""
    return method.options(num_returns=0)
