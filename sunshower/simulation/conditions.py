"""The conditions of a simulated cluster: machines, latency, cost of calls, drift of clocks."""

from __future__ import annotations

from dataclasses import dataclass

from sunshower.arguments import COUNT, SECONDS, Values, check_all
from sunshower.simulation.world import World

_LATENCIES_S = (0.000_1, 0.01)  # from one rack to one continent
_CALLS_S = (0.000_01, 0.003)
_NODES_MAX = 3
_DRIFTS = (0.000_1, 0.03)
_DRIFT = Values(float, least=0, most=0.99)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The seed draws every value that is not set. Times are averages.

    Raises ConfigError for invalid values.
    """

    nodes: int = 1
    latency_s: float  # of a message between two processes
    call_s: float  # of a call of user code, besides its own sleeps
    drift: float = 0.01  # largest relative error of a clock's rate
    down_s: tuple[float, float] = (0.05, 0.6)  # from a death to the start of the next process
    deaf_s: tuple[float, float] = (0.0, 0.7)  # until a caller learns that its call has failed

    def __post_init__(self) -> None:
        rules = {"nodes": COUNT, "drift": _DRIFT, "latency_s": SECONDS, "call_s": SECONDS}
        check_all(self, rules)


def drawn(
    world: World,
    *,
    nodes: int | None,
    drift: float | None,
    latency_s: float | None,
    call_s: float | None,
) -> Conditions:
    """Conditions for one seed, which draws each value that is None."""
    latency_s = _any_magnitude(world, *_LATENCIES_S) if latency_s is None else latency_s
    call_s = _any_magnitude(world, *_CALLS_S) if call_s is None else call_s
    nodes = 1 + int(world.draw() * _NODES_MAX) if nodes is None else nodes
    drift = _any_magnitude(world, *_DRIFTS) if drift is None else drift
    return Conditions(nodes=nodes, drift=drift, latency_s=latency_s, call_s=call_s)


def _any_magnitude(world: World, least: float, most: float) -> float:
    return float(least * (most / least) ** world.draw())
