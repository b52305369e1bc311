"""The port of the page: where plain data of topologies comes from, and what may be done to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Facts = dict[str, Any]  # what JSON can represent


class TopologySource(Protocol):
    """Called on several threads. Each method raises ClusterError for a name that is not there, and
    for a topology that does not answer."""

    def topologies(self) -> list[Facts]:
        """A summary of each topology, sorted by name."""

    def topology(self, name: str, window: str | None) -> Facts:
        """Everything about a topology but its single tasks; what its components did in this window
        of time, of those of `sunshower status`."""

    def component(self, name: str, component: str) -> Facts:
        """The tasks, the last errors and all windows of time of a component."""

    def traces(self, name: str) -> Facts:
        """Lists of recorded tuple trees, without their edges."""

    def trace(self, name: str, root: str) -> Facts:
        """One recorded tuple tree. Raises ConfigError for what is no root."""

    def letters(self, name: str, chosen: Mapping[str, str]) -> Facts:
        """The newest of the dead letters that satisfy each condition of `chosen`, which may have
        `component`, `cause`, `text`, and `since` and `until` in Unix time. Raises SourceError and
        KafkaError for places that cannot be read, ConfigError for a condition that is none."""

    def letter(self, name: str, id: str) -> Facts:
        """All of one dead letter."""

    def replay(self, name: str, chosen: Mapping[str, str]) -> str:
        """Begin to replay the dead letters that `letters` finds, without those that were replayed
        before, or the one whose id is `letter`; returns a sentence about it."""

    def replay_progress(self, name: str) -> Facts:
        """How far the last replay is; `total` is 0 if there was none."""

    def actions(self) -> list[str]:
        """The names of the actions that `act` takes."""

    def act(self, name: str, action: str, workers: int | None) -> str:
        """Do something to a topology; returns a sentence about it. `workers`: for `rebalance`."""
