"""Where the page gets its data: the masters of topologies on a Ray cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sunshower.cli.cluster_options import ANSWER_WITHIN_S, ask_all
from sunshower.cli.dead.replays import Ask, ask_of, not_replayed
from sunshower.cli.traces.facts import listed_trees, missing, no_such_tree, traces_fields
from sunshower.cli.ui.facts import component_facts, summary_facts, topology_facts, why_silent
from sunshower.cli.ui.letters import (
    ReadLetters,
    find_letter,
    letter_facts,
    list_facts,
    read_stores,
    selection_of,
)
from sunshower.cli.ui.replays import ReplaysByTopology
from sunshower.errors import ClusterError, SunshowerError
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.tuple_traces import NO_TRACES, Traces

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun

_FRESH_S = 0.5  # an overview is shared by requests within this time
Look = Callable[[str], Overview]
Facts = dict[str, Any]  # what JSON can represent


class FreshOverviews:
    """Calls `look` at most twice a second for each topology, however many pages are open. Returns
    the overview, and when it was taken, in Unix time."""

    def __init__(self, look: Look, clock: Callable[[], float] = time.time) -> None:
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._found: dict[str, tuple[Overview, float]] = {}

    def __call__(self, name: str) -> tuple[Overview, float]:
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            now_s = self._clock()
            found = self._found.pop(name, None)
            if found is None or abs(now_s - found[1]) >= _FRESH_S:
                found = self._look(name), now_s
            self._found[name] = found
            return found

    def forget(self, name: str) -> None:
        """Ask again at the next call."""
        with self._lock:
            self._found.pop(name, None)


class TopologySource:
    """The facts of topologies whose overviews `look` returns; nothing can be done to them.

    Called on several threads. Each method raises ClusterError for a name that is not there, and for
    a topology that does not answer.
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        look: Look,
        clock: Callable[[], float] = time.time,
        kafka: Mapping[str, Any] | None = None,
    ) -> None:
        """`clock`: Unix time, in seconds. `kafka`: settings of the client that reads topics with
        dead letters, added to those of a topology."""
        self._names, self._clock = names, clock
        self._look = FreshOverviews(look, clock)
        self.is_frozen = False  # the topologies have ended
        self._kafka = kafka or {}
        self._replays = ReplaysByTopology(clock)
        self._reads = threading.Lock()  # files and topics are read by one request at a time

    def freeze(self, overviews: Mapping[str, Overview]) -> None:
        """Show these from now on, as of now: the topologies have ended. A name that is not there
        has no overview."""
        at_s = self._clock()

        def look(name: str) -> Overview:
            if name not in overviews:
                raise ClusterError(f"{name!r} ended before it could be asked")
            return overviews[name]

        self._look, self.is_frozen = FreshOverviews(look, lambda: at_s), True

    def topologies(self) -> list[Facts]:
        """A summary of each topology, sorted by name."""
        return [
            {"topology": name, "state": why_silent(found)}
            if isinstance(found, SunshowerError)
            else summary_facts(name, *found)
            for name, found in ask_all(self._names(), self._look)
        ]

    def topology(self, name: str, window: str | None = None) -> Facts:
        """Everything about a topology but its single tasks; what its components did in this window
        of time, of those of `sunshower status`."""
        found, at_s = self._look(name)
        facts = topology_facts(found, at_s - found.since_s, window)
        for worker in facts["workers"]:
            worker["tasks"] = len(worker["tasks"])  # not thousands of names
        return facts

    def component(self, name: str, component: str) -> Facts:
        """The tasks, the last errors and all windows of time of a component."""
        found, at_s = self._look(name)
        return component_facts(found, component, at_s - found.since_s)

    def traces(self, name: str) -> Facts:
        """Lists of recorded tuple trees, without their edges."""
        plan = self._look(name)[0].plan  # fails soon without its master
        found = self._recorded(name, None)
        if list(found.silent) == plan.workers:
            raise ClusterError(
                f"no worker of {name!r} answers, so its recorded trees are not known; try again, "
                f"or see `sunshower status {name}`"
            )
        return listed_trees(plan, found)

    def trace(self, name: str, root: str) -> Facts:
        """One recorded tuple tree. Raises ConfigError for what is no root."""
        self._look(name)
        found = self._recorded(name, root)
        if not found.trees:
            raise ClusterError(". ".join([str(no_such_tree(name, root)), *missing(found)]))
        return traces_fields(found, found.trees)

    def _recorded(self, name: str, root: str | None) -> Traces:
        """What the workers of a topology have recorded."""
        return NO_TRACES

    def letters(self, name: str, chosen: Mapping[str, str]) -> Facts:
        """The newest of the dead letters that satisfy each condition of `chosen`, which may have
        `component`, `cause`, `text`, and `since` and `until` in Unix time. Raises SourceError and
        KafkaError for places that cannot be read, ConfigError for a condition that is none."""
        return list_facts(self._read(name), chosen)

    def letter(self, name: str, id: str) -> Facts:
        """All of one dead letter."""
        return letter_facts(find_letter(self._read(name), id))

    def replay(self, name: str, chosen: Mapping[str, str]) -> str:
        """Begin to replay the dead letters that `letters` finds, without those that were replayed
        before, or the one whose id is `letter`; returns a sentence about it."""
        read = self._read(name)
        if "letter" in chosen:
            letters = [find_letter(read, chosen["letter"])]
        else:
            letters = not_replayed(selection_of(chosen).of(read.letters))
        if not letters:
            return "there is nothing to replay: all of these letters were replayed before"
        self._replays.start(name, letters, self._ask(name))
        number = f"{len(letters):,} dead letter{'s are' if len(letters) > 1 else ' is'}"
        return f"{number} being replayed"

    def replay_progress(self, name: str) -> Facts:
        """How far the last replay is; `total` is 0 if there was none."""
        return self._replays.progress(name)

    def _read(self, name: str) -> ReadLetters:
        stores = self._look(name)[0].letters
        with self._reads:
            return read_stores(stores, self._kafka)

    def _ask(self, name: str) -> Ask:
        """What replays one letter."""
        raise ClusterError(f"nothing can be done to {name!r} here")

    def actions(self) -> list[str]:
        """The names of the actions that `act` takes."""
        return []

    def act(self, name: str, action: str, workers: int | None) -> str:
        """Do something to a topology; returns a sentence about it. `workers`: for `rebalance`."""
        raise ClusterError(f"nothing can be done to {name!r} here")


class RaySource(TopologySource):
    """Topologies on Ray. `end`: what ends one: `kill`, or `drain` where `sunshower run` waits for
    its end."""

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        find: Callable[[str], RayRun],
        end: str,
        kafka: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(names, lambda name: find(name).overview(ANSWER_WITHIN_S), kafka=kafka)
        self._find = find
        self._end = end

    def _recorded(self, name: str, root: str | None) -> Traces:
        return NO_TRACES if self.is_frozen else self._find(name).traces(root)

    def _ask(self, name: str) -> Ask:
        return super()._ask(name) if self.is_frozen else ask_of(self._find(name))

    def actions(self) -> list[str]:
        return [] if self.is_frozen else ["activate", "deactivate", "rebalance", self._end]

    def act(self, name: str, action: str, workers: int | None) -> str:
        if self.is_frozen:
            return super().act(name, action, workers)
        run = self._find(name)
        try:
            match action:
                case "activate":
                    run.activate()
                    return f"{name} is active"
                case "deactivate":
                    run.deactivate()
                    return f"{name} is inactive"
                case "rebalance":
                    run.rebalance(workers, waits=False)
                    return f"{name} is being rebalanced"
                case "drain":
                    run.drain()
                    return f"{name} finishes what is pending, and ends"
                case "kill":
                    report = run.kill()
                    return f"{name} is gone; {report.unsettled:,} records were still pending"
                case _:
                    return super().act(name, action, workers)
        finally:
            self._look.forget(name)
