"""Halves of batch spouts that have nothing to say in one of the two places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sunshower.trident.attempts import Attempt


class BaseCoordinator:
    """See the port `Coordinator`: a batch may begin at any time, and there is no last one."""

    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        return {"txid": txid}

    def success(self, txid: int) -> None: ...

    def is_ready(self, txid: int) -> bool:
        return True

    def is_last(self, metadata: Any) -> bool:
        return False

    def close(self) -> None: ...


class BaseEmitter:
    """See the port `Emitter`, without its `emit_batch`: nothing is kept."""

    def commit(self, attempt: Attempt) -> None: ...

    def success(self, attempt: Attempt) -> None: ...

    def close(self) -> None: ...

    def figures(self) -> Mapping[str, float]:
        return {}
