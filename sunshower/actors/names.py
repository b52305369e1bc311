"""Names of a topology's Ray actors, and calls without a result."""

from __future__ import annotations

from typing import Any

NAMESPACE = "sunshower"
CALL_S = 30.0  # timeout of a call


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
    """The run whose master has this name; None for any other name."""
    return master.removesuffix("/master") if master.endswith("/master") else None


def topology_of(run: str) -> str:
    """The topology of a run, whose id is the topology's, a hyphen, and random characters."""
    return run.rpartition("-")[0]


def detached(name: str) -> dict[str, Any]:
    """The options of an actor that outlives its creator."""
    return {"name": name, "namespace": NAMESPACE, "lifetime": "detached"}


def silent(method: Any) -> Any:
    """An actor's method that returns no result and no error to the caller."""
    return method.options(num_returns=0)
