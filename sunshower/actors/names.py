"""How actors of one topology find each other on Ray, and how they call without waiting."""

from __future__ import annotations

from typing import Any

NAMESPACE = "sunshower"
CALL_S = 30.0  # until a call that nobody answers is given up


def master_name(run: str) -> str:
    """The name of a run's master."""
    return f"{run}/master"


def worker_name(run: str, worker: int) -> str:
    """The name of one of a run's workers."""
    return f"{run}/worker-{worker}"


def worker_of(name: str) -> int | None:
    """The worker with this name; None for a master's."""
    number = name.rpartition("/worker-")[-1]
    return int(number) if number != name else None


def run_of(master: str) -> str | None:
    """The run whose master has this name; None for the name of anybody else."""
    return master.removesuffix("/master") if master.endswith("/master") else None


def topology_of(run: str) -> str:
    """The topology that a run is of: its id is the topology's, a hyphen, and something random."""
    return run.rpartition("-")[0]


def claim_key(topology: str) -> str:
    """Where the store has that somebody is submitting a topology."""
    return f"claims/{topology}/"


def plan_key(run: str) -> str:
    """Where the store has a run's plan."""
    return f"{run}/plan"


def book_key(run: str) -> str:
    """Where the store has the book of a run's master."""
    return f"{run}/book"


def archive_key(run: str) -> str:
    """Where the store has where a run's history is kept, if it is."""
    return f"{run}/archive"


def paused_key(run: str) -> str:
    """Where the store has a mark when a process of a run was paused."""
    return f"{run}/paused"


def mark_key(run: str, task: int) -> str:
    """Where the store has how far a spout task of a run may draw."""
    return f"{run}/mark/{task}"


def luggage_key(run: str, move: int, task: int) -> str:
    """Where the store has what a task takes along in a rebalance of a run."""
    return f"{luggage_keys(run)}{move}/{task}"


def luggage_keys(run: str) -> str:
    """What the keys of all luggage of a run begin with."""
    return f"{run}/luggage/"


def detached(name: str) -> dict[str, Any]:
    """The options of an actor that outlives whoever has created it."""
    return {"name": name, "namespace": NAMESPACE, "lifetime": "detached"}


def silent(method: Any) -> Any:
    """An actor's method, to be called without ever hearing of the outcome."""
    return method.options(num_returns=0)
