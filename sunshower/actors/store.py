"""A store in Ray's own key-value table: it lives as long as the Ray cluster's head does."""

from __future__ import annotations

from ray.experimental import internal_kv

from sunshower.actors.names import NAMESPACE


class RayStore:
    """See the port. Values may have some megabytes; a write is a call of about a millisecond."""

    def read(self, key: str) -> bytes | None:
        """See the port."""
        found: bytes | None = internal_kv._internal_kv_get(key, namespace=NAMESPACE)
        return found

    def write(self, key: str, value: bytes) -> None:
        """See the port."""
        internal_kv._internal_kv_put(key, value, overwrite=True, namespace=NAMESPACE)

    def remove(self, prefix: str) -> None:
        """See the port."""
        internal_kv._internal_kv_del(prefix, del_by_prefix=True, namespace=NAMESPACE)
