"""A healthy chain, and the components that a test declares, side by side in one worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from sunshower import Context, Failure, Spout, Topology
from sunshower.runtime.events.health import Health
from sunshower.runtime.plan import Layout, make_plan
from tests.runtime.network import Network
from tests.runtime.rig import Number

TOTAL = 40
SLEEPS = 0.1 + 0.2 + 0.4 + 0.8  # between five errors in a row
DOUBT_S = 600.0  # how long a task that had succeeded may pause


class Numbers(Spout[Number]):
    """A source that records its failures."""

    heard: list[tuple[int, Failure]]

    def __init__(self, total: int = TOTAL) -> None:
        self.total = total

    def open(self, context: Context) -> None:
        self.heard = []

    def records(self) -> Iterator[Number]:
        yield from map(Number, range(self.total))

    def fail(self, message_id: int, failure: Failure) -> None:
        self.heard.append((message_id, failure))


class Chains:
    """A healthy chain `numbers` → `keep`, and whatever else the test declares."""

    def __init__(self, **settings: Any) -> None:
        self.healthy: Counter[int] = Counter()  # by the healthy chain
        self.got: Counter[int] = Counter()  # by the other one
        self.topology = Topology("t", **{"ackers": 2, "message_timeout_s": 1e4, **settings})
        self.topology.spout("numbers", Numbers()).shuffle().bolt("keep", self.keep)

    def keep(self, number: Number) -> None:
        self.healthy[number.n] += 1

    def get(self, number: Number) -> None:
        self.got[number.n] += 1

    def start(self, layout: Layout = Layout.PACK, *, seconds_max: float = 600.0) -> Network:
        plan = make_plan(self.topology.graph(), layout)
        self.net = Network(plan, seconds_max=seconds_max)
        return self.net

    def task(self, component: str) -> Any:
        return self.net.task(component)

    def health(self, component: str) -> Health:
        return self.net.health(component)

    def healthy_chain_is_done(self) -> None:
        assert self.healthy == Counter(range(TOTAL)), "the healthy chain is not complete"


class Flaky:
    """Raises in its first `times` calls, wherever they are; shared by all instances."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise OSError("gone")

    def __deepcopy__(self, memo: object) -> Flaky:
        return self


def sink(number: Number) -> None: ...
