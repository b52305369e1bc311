"""Checks the times in a declaration: the timeout of a spout's trees, and the tick interval."""

from __future__ import annotations

from typing import Any

from sunshower.arguments import SECONDS
from sunshower.errors import TopologyError
from sunshower.topologies.components import BatchBolt, Bolt, Spout

_TIMEOUT = SECONDS.or_else("none", None)


def check_timeout(seconds: Any, where: str) -> None:
    """Check the timeout of a spout. Raises TopologyError."""
    _TIMEOUT.check(f"{where}: message_timeout_s", seconds, TopologyError)


def tick_of(code: Any, tick_s: Any, where: str) -> float | None:
    """Return the seconds between ticks: as declared, else of the class, or None. Raises
    TopologyError for a tick without a time, and a time without a tick."""
    kind = code if isinstance(code, type) else type(code)
    base = next((base for base in (Spout, Bolt, BatchBolt) if issubclass(kind, base)), None)
    ticks = base is not None and getattr(kind, "tick") is not getattr(base, "tick")  # noqa: B009
    if tick_s is None and ticks:
        tick_s = code.tick_s
    if tick_s is None:
        if ticks:
            raise TopologyError(
                f"{where}: {kind.__name__} has a tick, but nothing says how often: give tick_s=…, "
                "in seconds (fractions are fine)"
            )
        return None
    if base is None:
        raise TopologyError(
            f"{where}: tick_s is for components that have a tick, and a function has none; write a "
            "Bolt with process(record) and tick()"
        )
    if not ticks:
        raise TopologyError(f"{where}: tick_s is given, but {kind.__name__} has no tick; write one")
    SECONDS.check(f"{where}: tick_s", tick_s, TopologyError)
    return float(tick_s)
