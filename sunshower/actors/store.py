"""What a run stores in Ray's own key-value table, which lasts as long as the Ray cluster's head.

The key of a value is `RUN/NAME`. Values are removed by a prefix of their keys, so the name of a
plan, which is removed alone, ends with a slash. The names:

    version                the version of the run's processes
    packets                the secret with which workers prove that they belong to the run
    plan/NUMBER/           the plans; 0: as submitted
    master-state           the MasterState
    transfer/MOVE/TASK     the TaskTransfer of a task in a rebalance
    reservation/TASK       the emit reservation of a spout task
    event-log              the location of the event log, if there is one
    paused                 exists once a process of the run was paused

Besides, `claim/TOPOLOGY` exists while a client submits a topology of that name.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import ray
from ray import cloudpickle
from ray.experimental import internal_kv

from sunshower import versions
from sunshower.actors.names import NAMESPACE, topology_of
from sunshower.actors.shipping import CodeClasses, outline, pickled
from sunshower.actors.starting import first_line
from sunshower.errors import (
    ClusterError,
    CodeNotLoaded,
    LifecycleError,
    StoreUnreachable,
    user_errors,
)
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.plan import Plan, Task

if TYPE_CHECKING:
    from sunshower.runtime.control.savepoint import Savepoint

_log = logging.getLogger(__name__)

PLANS, _TRANSFERS = "plan/", "transfer/"
_TRANSFER_BYTES_MAX = 1 << 28  # of the state of one task; Ray's store accepts 512 MiB


class RayStore:
    """The values of one run. They may have some megabytes; a write takes about a millisecond.

    Every method raises StoreUnreachable if the head of the Ray cluster does not answer.
    """

    def __init__(self, run: str) -> None:
        self._run = run

    def read(self, name: str) -> bytes | None:
        with _errors(key := f"{self._run}/{name}"):
            value: bytes | None = internal_kv._internal_kv_get(key, namespace=NAMESPACE)
        return value

    def write(self, name: str, value: bytes) -> None:
        with _errors(key := f"{self._run}/{name}"):
            internal_kv._internal_kv_put(key, value, overwrite=True, namespace=NAMESPACE)

    def remove(self, prefix: str = "") -> None:
        """Remove all values whose names have this prefix."""
        with _errors(key := f"{self._run}/{prefix}"):
            internal_kv._internal_kv_del(key, del_by_prefix=True, namespace=NAMESPACE)

    def clear(self, prefix: str = "") -> None:
        """Remove likewise what a run that has ended has stored, or log why not."""
        try:
            self.remove(prefix)
        except StoreUnreachable as error:
            if ray.is_initialized():  # else its store has ended, too
                _log.warning("what %s has stored is not removed: %s", self._run, error)

    # ---- the version and the secret --------------------------------------------------------------

    def begin(self) -> None:
        """Store the version of this process as that of the run, and a new secret."""
        self.write("version", versions.stamp(versions.PROTOCOL))
        self.write("packets", secrets.token_bytes(32))

    def check_version(self, who: str) -> None:
        """Raise VersionMismatch unless this process has the version of the run. Call it before
        anything else of the run is read, or any of its processes called."""
        versions.unstamp(
            f"the topology {topology_of(self._run)!r}, which {who} has found,",
            self.read("version") or b"",
            versions.PROTOCOL,
            "install the release that it was submitted with, on all nodes and clients, or kill it "
            "with that release and submit it again with this one",
        )

    def packet_key(self) -> bytes:
        """The secret."""
        stored = self.read("packets")
        assert stored is not None, f"no key of {self._run} in the store"
        return stored

    # ---- plans -----------------------------------------------------------------------------------

    def save_plan(self, number: int, plan: Plan) -> None:
        """Raises TopologyError for code that cannot be pickled."""
        self.write_plan(number, pickled(plan))

    def write_plan(self, number: int, data: bytes) -> None:
        """Save a plan that is pickled already."""
        self.write(f"{PLANS}{number}/", data)

    def read_plan(self, number: int) -> bytes:
        """A plan, as it is pickled."""
        data = self.read(f"{PLANS}{number}/")
        assert data is not None, f"no plan {number} of {self._run} in the store"
        return data

    def load_plan(self, number: int) -> Plan:
        """A plan, with the user's code. Raises CodeNotLoaded if that does not load here."""
        return self._loaded(cloudpickle.loads, number)

    def load_outline(self, number: int) -> Plan:
        """A plan without the user's code. Raises CodeNotLoaded if what it is installed with does
        not load here."""
        return self._loaded(outline, number)

    def _loaded(self, load: Callable[[bytes], Plan], number: int) -> Plan:
        data = self.read_plan(number)
        try:
            plan = load(data)
        except user_errors() as error:
            node = ray.get_runtime_context().get_node_id()
            raise CodeNotLoaded(
                f"the code of topology {topology_of(self._run)!r} does not load on node {node}: "
                f"{first_line(error)}. Install its imports on all nodes, and submit it again"
            ) from error
        return plan

    def plan_numbers(self) -> list[int]:
        """The numbers of all stored plans."""
        return [int(key.split("/")[-2]) for key in keys(f"{self._run}/{PLANS}")]

    def keep_plans(self, numbers: Collection[int]) -> None:
        """Remove all plans but these."""
        for number in self.plan_numbers():
            if number not in numbers:
                self.remove(f"{PLANS}{number}/")

    # ---- the state of the master, and of tasks that move -----------------------------------------

    def load_state(self) -> bytes | None:
        """The MasterState; None: there is none yet."""
        return self.read("master-state")

    def save_state(self, state: bytes) -> None:
        self.write("master-state", state)

    def plan_in_force(self) -> int:
        """The number of the plan that the master has stored as the present one."""
        state = self.load_state()
        return MasterState.from_bytes(state).plan if state else 0

    def resume(self, savepoint: Savepoint, state: MasterState) -> None:
        """Store what the processes of a run find that continues from a savepoint."""
        for task, transfer in savepoint.transfers.items():
            self.save_transfer(state.moves, task, transfer)
        self.save_state(state.to_bytes())

    def transfer(self, move: int, task: int) -> bytes | None:
        """The pickled TaskTransfer that a task has stored in rebalance number `move`."""
        return self.read(f"{_TRANSFERS}{move}/{task}")

    def save_transfer(self, move: int, task: int, packed: bytes) -> None:
        self.write(f"{_TRANSFERS}{move}/{task}", packed)

    def remove_transfers(self) -> None:
        """Remove the TaskTransfers of all rebalances."""
        self.remove(_TRANSFERS)


def remove_leftovers(topology: str) -> None:
    """Remove what runs of this topology have stored whose master was ended by others."""
    for key in keys(f"{topology}-"):
        run = key.removesuffix("/version")
        if run != key and topology_of(run) == topology:
            RayStore(run).remove()


def keys(prefix: str) -> list[str]:
    """The keys of all runs with this prefix. Raises StoreUnreachable."""
    with _errors(prefix):
        stored = internal_kv._internal_kv_list(prefix, namespace=NAMESPACE)
    return [key.decode() for key in stored]


@contextmanager
def claimed(topology: str) -> Iterator[None]:
    """A lock on submitting a topology of that name. Raises ClusterError if another client holds it,
    StoreUnreachable.

    The lock is a key, which only one client can put. The key of a client that died stays, and the
    next client puts the key that follows it. If clients removed the keys of dead ones, two that
    have seen one death could remove each other's.
    """
    context = ray.get_runtime_context()
    parts = context.get_job_id(), context.get_worker_id(), secrets.token_hex(8)
    key, mine = f"claim/{topology}", "-".join(parts)
    with _errors(key):
        while (holder := _put_first(key, mine)) != mine:
            if holder is not None and _lives(holder):
                break
            key = f"{key}/{holder}" if holder is not None else key
    if holder != mine:
        raise ClusterError(
            f"another client is submitting a topology {topology!r} at this moment; "
            f"`sunshower status {topology}` shows whether it has started"
        )
    try:
        yield
    finally:
        try:
            internal_kv._internal_kv_del(key, namespace=NAMESPACE)
        except Exception as error:  # whoever submits it again is refused until this process ends
            _log.warning("the claim on %r is not removed: %s", topology, error)


def _put_first(key: str, value: str) -> str | None:
    """Put a value if there is none, and return the present one; None: it was just removed."""
    if not internal_kv._internal_kv_put(key, value, overwrite=False, namespace=NAMESPACE):
        return value
    stored: bytes | None = internal_kv._internal_kv_get(key, namespace=NAMESPACE)
    return None if stored is None else stored.decode()


def _lives(holder: str) -> bool:
    """Whether the client that has put this lives: a driver, or a worker of its job."""
    from ray._private import state  # no public API without Ray's dashboard: see the pin of ray

    job, worker, _ = holder.split("-")
    jobs = {job["JobID"] for job in state.jobs() if not job["IsDead"]}
    is_driver = worker.startswith(job)
    return job in jobs and (is_driver or worker in state.workers())


@contextmanager
def _errors(key: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise StoreUnreachable(
            f"{key} in the store of the Ray cluster's head cannot be read or written: "
            f"{type(error).__name__}: {error}"
        ) from error


class RayReservationStore:
    """The emit reservations of some spout tasks of one run, in Ray's store.

    The constructor reads them once. It and `write` raise StoreUnreachable.
    """

    def __init__(self, run: str, tasks: Iterable[int]) -> None:
        self._store = RayStore(run)
        self._found = {task: self._store.read(f"reservation/{task}") for task in tasks}

    def read(self, task: int) -> int:
        return int(self._found[task] or 0)

    def write(self, task: int, number: int) -> None:
        self._store.write(f"reservation/{task}", b"%d" % number)


class RayTransferStore:
    """The TaskTransfers of one run's tasks, in Ray's store; `plan`: with the code that is packed,
    or continues. Its methods raise StoreUnreachable."""

    def __init__(self, run: str, plan: Plan) -> None:
        self._store = RayStore(run)
        self._classes = CodeClasses(plan)

    def load(self, move: int, task: Task) -> TaskTransfer | None:
        """See WorkerProcessBase. Raises LifecycleError if what is stored cannot be read here."""
        data = self._store.transfer(move, task.id)
        if data is None:
            return None
        try:
            transfer: TaskTransfer = self._classes.loads(data)
        except user_errors() as error:
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
        if self._store.transfer(move, task.id) is not None:
            return
        try:
            dumps = self._classes.dumps if keeping else self._classes.dumps_by_value
            data = dumps(transfer)
        except LifecycleError as error:
            raise LifecycleError(
                f"{task.name} cannot be kept: {error}, and it has an object of this class in "
                "memory. Use plain values, a class that the code of the topology names, or one in "
                "an installed module; or kill the topology without --keep"
            ) from error
        if len(data) > _TRANSFER_BYTES_MAX:
            raise LifecycleError(
                f"{task.name} cannot move to another process: its state has {len(data):,} "
                f"bytes, more than {_TRANSFER_BYTES_MAX:,}. Return less from snapshot(), such "
                "as the name of a file or of a state"
            )
        self._store.save_transfer(move, task.id, data)
