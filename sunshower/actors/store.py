"""A store in Ray's own key-value table, which lasts as long as the Ray cluster's head."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import ray
from ray import cloudpickle
from ray.experimental import internal_kv

from sunshower import versions
from sunshower.actors.names import (
    NAMESPACE,
    master_state_key,
    packet_key,
    plan_key,
    reservation_key,
    topology_of,
    transfer_key,
    version_key,
)
from sunshower.actors.shipping import CodeClasses
from sunshower.actors.starting import first_line
from sunshower.errors import ClusterError, LifecycleError, StoreUnreachable
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.plan import Plan, Task
from sunshower.runtime.savepoint import Savepoint

_log = logging.getLogger(__name__)
_TRANSFER_BYTES_MAX = 1 << 28  # of the state of one task; Ray's store accepts 512 MiB


class RayStore:
    """Values may have some megabytes; a write takes about a millisecond.

    Every method raises StoreUnreachable if the head of the Ray cluster does not answer.
    """

    def read(self, key: str) -> bytes | None:
        with _errors(key):
            found: bytes | None = internal_kv._internal_kv_get(key, namespace=NAMESPACE)
        return found

    def write(self, key: str, value: bytes) -> None:
        with _errors(key):
            internal_kv._internal_kv_put(key, value, overwrite=True, namespace=NAMESPACE)

    def keys(self, prefix: str) -> list[str]:
        """All keys with this prefix."""
        with _errors(prefix):
            found = internal_kv._internal_kv_list(prefix, namespace=NAMESPACE)
        return [key.decode() for key in found]

    def remove(self, prefix: str) -> None:
        with _errors(prefix):
            internal_kv._internal_kv_del(prefix, del_by_prefix=True, namespace=NAMESPACE)

    def load_plan(self, run: str, number: int) -> Plan:
        """A plan of a run, with the user's code. Raises ClusterError if that does not load here."""
        packed = self.read(plan_key(run, number))
        assert packed is not None, f"no plan {number} of {run} in the store"
        try:
            plan: Plan = cloudpickle.loads(packed)
        except Exception as error:
            node = ray.get_runtime_context().get_node_id()
            raise ClusterError(
                f"the code of topology {topology_of(run)!r} does not load on node {node}: "
                f"{first_line(error)}. Install its imports on all nodes, and submit it again"
            ) from error
        return plan

    def plan_in_force(self, run: str) -> int:
        """The number of the plan that the master of a run has stored as the present one."""
        state = self.read(master_state_key(run))
        return MasterState.from_bytes(state).plan if state else 0


@contextmanager
def _errors(key: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise StoreUnreachable(
            f"{key} in the store of the Ray cluster's head cannot be read or written: "
            f"{type(error).__name__}: {error}"
        ) from error


def write_version(run: str) -> None:
    """Store the version of this process as that of the run."""
    RayStore().write(version_key(run), versions.stamp(versions.PROTOCOL))


def write_resumed(run: str, savepoint: Savepoint, state: MasterState) -> None:
    """Store what the processes of a run find that continues from a savepoint."""
    store = RayStore()
    for task, packed in savepoint.transfers.items():
        store.write(transfer_key(run, state.moves, task), packed)
    store.write(master_state_key(run), state.to_bytes())


def transfers_of(run: str, move: int) -> Callable[[int], bytes | None]:
    """Returns the pickled TaskTransfer that a task has stored in rebalance number `move`."""
    store = RayStore()
    return lambda task: store.read(transfer_key(run, move, task))


def remove_stored(run: str, prefix: str) -> None:
    """Remove what a run that has ended has stored under this prefix, or log why not."""
    try:
        RayStore().remove(prefix)
    except StoreUnreachable as error:
        if ray.is_initialized():  # else its store has ended, too
            _log.warning("what %s has stored is not removed: %s", run, error)


def write_packet_key(run: str) -> None:
    """Store a new secret with which workers prove that they belong to the run."""
    RayStore().write(packet_key(run), secrets.token_bytes(32))


def check_version(run: str, who: str) -> None:
    """Raise VersionMismatch unless this process has the version of the run. Call it before anything
    else of the run is read, or any of its processes called."""
    versions.unstamp(
        f"the topology {topology_of(run)!r}, which {who} has found,",
        RayStore().read(version_key(run)) or b"",
        versions.PROTOCOL,
        "install the release that it was submitted with, on all nodes and clients, or kill it "
        "with that release and submit it again with this one",
    )


class RayReservationStore:
    """The emit reservations of some spout tasks of one run, in Ray's store.

    The constructor reads them once. It and `write` raise StoreUnreachable.
    """

    def __init__(self, run: str, tasks: Iterable[int]) -> None:
        self._run = run
        self._store = RayStore()
        self._found = {task: self._store.read(reservation_key(run, task)) for task in tasks}

    def read(self, task: int) -> int:
        return int(self._found[task] or 0)

    def write(self, task: int, number: int) -> None:
        self._store.write(reservation_key(self._run, task), b"%d" % number)


class RayTransferStore:
    """The TaskTransfers of one run's tasks, in Ray's store; `plan`: with the code that is packed,
    or continues. Its methods raise StoreUnreachable."""

    def __init__(self, run: str, plan: Plan) -> None:
        self._run = run
        self._store = RayStore()
        self._classes = CodeClasses(plan)

    def load(self, move: int, task: Task) -> TaskTransfer | None:
        """See WorkerProcessBase. Raises LifecycleError if what is stored cannot be read here."""
        packed = self._store.read(transfer_key(self._run, move, task.id))
        if packed is None:
            return None
        try:
            transfer: TaskTransfer = self._classes.loads(packed)
        except Exception as error:
            why = str(error) if isinstance(error, LifecycleError) else first_line(error)
            raise LifecycleError(
                f"the state of {task.name}, which is in a savepoint or comes from another "
                f"process, cannot be read here: {why}. Install what it needs on all nodes; or kill "
                "the topology, and submit it without --resume"
            ) from error
        return transfer

    def save(self, move: int, task: Task, transfer: TaskTransfer, keeping: bool) -> None:
        """See WorkerProcessBase. Raises LifecycleError if it is too large, or, for a savepoint, if
        it has an object of a class that other code does not know."""
        key = transfer_key(self._run, move, task.id)
        if self._store.read(key) is not None:
            return
        try:
            packed = (self._classes.dumps if keeping else cloudpickle.dumps)(transfer)
        except LifecycleError as error:
            raise LifecycleError(
                f"{task.name} cannot be kept: {error}, and it has an object of this class in "
                "memory. Use plain values, a class that the code of the topology names, or one in "
                "an installed module; or kill the topology without --keep"
            ) from error
        if len(packed) > _TRANSFER_BYTES_MAX:
            raise LifecycleError(
                f"{task.name} cannot move to another process: its state has {len(packed):,} "
                f"bytes, more than {_TRANSFER_BYTES_MAX:,}. Return less from snapshot(), such "
                "as the name of a file or of a state"
            )
        self._store.write(key, packed)
