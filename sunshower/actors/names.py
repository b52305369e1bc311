"""Names of a topology's Ray actors, its keys in the store, and calls without a result."""

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


def claim_name(topology: str) -> str:
    """The name of the actor that exists while a topology is being submitted."""
    return f"{topology}/claim"


def version_key(run: str) -> str:
    """The key of the version of a run's processes."""
    return f"{run}/version"


def plan_keys(run: str) -> str:
    """The prefix of the keys of a run's plans."""
    return f"{run}/plan/"


def plan_key(run: str, number: int) -> str:
    """The key of a run's plan of that number; 0: as submitted. No key is a prefix of another."""
    return f"{plan_keys(run)}{number}/"


def packet_key(run: str) -> str:
    """The key of the secret with which workers prove that they belong to a run."""
    return f"{run}/packets"


def master_state_key(run: str) -> str:
    """The key of a run's MasterState."""
    return f"{run}/master-state"


def event_log_key(run: str) -> str:
    """The key of the location of a run's event log, if it has one."""
    return f"{run}/event-log"


def paused_key(run: str) -> str:
    """The key that exists once a process of a run was paused."""
    return f"{run}/paused"


def reservation_key(run: str, task: int) -> str:
    """The key of the emit reservation of a spout task."""
    return f"{run}/reservation/{task}"


def transfer_key(run: str, move: int, task: int) -> str:
    """The key of a task's TaskTransfer in a rebalance."""
    return f"{transfer_keys(run)}{move}/{task}"


def transfer_keys(run: str) -> str:
    """The common prefix of the keys of all TaskTransfers of a run."""
    return f"{run}/transfer/"


def detached(name: str) -> dict[str, Any]:
    """The options of an actor that outlives its creator."""
    return {"name": name, "namespace": NAMESPACE, "lifetime": "detached"}


def silent(method: Any) -> Any:
    """An actor's method that returns no result and no error to the caller."""
    return method.options(num_returns=0)
