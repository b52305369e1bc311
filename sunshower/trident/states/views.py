"""States that are only read.

Storm: org.apache.storm.trident.state.map.SnapshottableMap, TridentTopology.newStaticState.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sunshower.arguments import check_all
from sunshower.errors import TopologyError
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import Key, MapState, Place, StateKind, Update


@dataclass(frozen=True)
class StaticState:
    """A read-only state for lookups: a mapping, or a function that each task calls once. The result
    of a function stays in its task and need not be pickled."""

    values: Mapping[Any, Any] | Callable[[], Mapping[Any, Any]] = field(repr=False)
    kind = StateKind.TRANSACTIONAL  # reading alone cannot count anything twice

    def __post_init__(self) -> None:
        check_all(self, {}, "StaticState: ")

    def make(self, place: Place) -> MapState:
        values = self.values if isinstance(self.values, Mapping) else self.values()
        return _ReadOnly(values, place.state)


class _ReadOnly:
    """A MapState that raises on writes."""

    def __init__(self, values: Mapping[Any, Any], name: str) -> None:
        self._values = values
        self._name = name

    def begin_commit(self, attempt: Attempt) -> None: ...

    def commit(self, attempt: Attempt) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...

    def multi_get(self, keys: Sequence[Key]) -> list[Any]:
        return [self._values.get(key) for key in keys]

    def multi_update(self, keys: Sequence[Key], updates: Sequence[Update]) -> NoReturn:
        self.multi_remove(keys)

    def multi_put(self, keys: Sequence[Key], values: Sequence[Any]) -> NoReturn:
        self.multi_remove(keys)

    def items(self) -> Iterator[tuple[Key, Any]]:
        return iter(self._values.items())

    def multi_remove(self, keys: Sequence[Key]) -> NoReturn:
        raise TopologyError(
            f"state {self._name!r} is static: it can only be read. To write, use a "
            "SqliteState or another state"
        )
