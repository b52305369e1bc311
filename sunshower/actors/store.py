"""A store in Ray's own key-value table, which lasts as long as the Ray cluster's head."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from ray.experimental import internal_kv

from sunshower.actors.names import NAMESPACE, claim_key, reservation_key
from sunshower.errors import ClusterError, StoreUnreachable

_CLAIM_S = 120.0  # more than a submission takes


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

    def remove(self, prefix: str) -> None:
        with _errors(prefix):
            internal_kv._internal_kv_del(prefix, del_by_prefix=True, namespace=NAMESPACE)


@contextmanager
def _errors(key: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise StoreUnreachable(
            f"{key} in the store of the Ray cluster's head cannot be read or written: "
            f"{type(error).__name__}: {error}"
        ) from error


@contextmanager
def claimed(topology: str) -> Iterator[None]:
    """A lock on submitting a topology of that name. Raises ClusterError if another client holds it.

    The lock of a client that died expires after two minutes.
    """
    store, key = RayStore(), claim_key(topology)
    since_s = float(store.read(key) or 0.0)
    if since_s < time.time() - _CLAIM_S:
        store.remove(key)
    now = b"%f" % time.time()
    if internal_kv._internal_kv_put(key, now, overwrite=False, namespace=NAMESPACE):
        raise ClusterError(
            f"somebody else is submitting a topology {topology!r} at this moment; if whoever it "
            f"was has died meanwhile, submit it again in {_CLAIM_S / 60:g} minutes"
        )
    try:
        yield
    finally:
        with suppress(Exception):  # if Ray has ended, so has the lock
            if store.read(key) == now:
                store.remove(key)


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
