"""A running topology in words and numbers: a table for a terminal, a line for a file."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from rich import box
from rich.table import Table

from sunshower.cli.standing import standing
from sunshower.cli.troubles import quarantined
from sunshower.cli.waits import WaitNews
from sunshower.runtime.metrics import Counts, Snapshot
from sunshower.topologies.graph import Graph
from sunshower.trident.attempts import group_of

_HEADINGS = ("emitted", "acked", "failed", "replayed", "pending", "per s", "p50", "p99")
_WINDOW_S = 3.0  # a rate is that of the last few seconds


class Rates:
    """How much each component does in a second."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[str, int]]] = deque()

    def see(self, now: float, done: Mapping[str, int]) -> None:
        """Remember what each component has done until now (seconds on any steady clock)."""
        self._seen.append((now, done))
        while now - self._seen[0][0] > _WINDOW_S and len(self._seen) > 2:
            self._seen.popleft()

    def of(self, component: str) -> float:
        """Records a second; 0 until there is something to compare with."""
        if len(self._seen) < 2:
            return 0.0
        (start_s, before), (end_s, after) = self._seen[0], self._seen[-1]
        done = after.get(component, 0) - before.get(component, 0)
        return max(done, 0) / max(end_s - start_s, 1e-9)


class Display:
    """Renders the snapshots of one run."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._spouts = {spout.id for spout in graph.spouts}
        self._tracked = graph.config.tracked
        self._rates = Rates()
        self._waits = WaitNews()
        self._quarantined: set[int] = set()  # tasks whose quarantine there was a line for

    def see(self, snapshot: Snapshot, now: float) -> None:
        """Take note of a snapshot, for the rates."""
        done = {id: self._done(id, snapshot.component(id)) for id in self._graph.components}
        self._rates.see(now, done)

    def table(self, snapshot: Snapshot, title: str, *, average_s: float | None = None) -> Table:
        """One row a component. Rates of the last seconds, or averages over `average_s`."""
        table = Table(
            title=title,
            title_style="bold",
            title_justify="left",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            padding=0,
        )
        table.add_column("component", overflow="fold")  # a long name is folded, figures never
        for heading in _HEADINGS:
            table.add_column(heading, justify="right", no_wrap=True)
        for component in self._graph.components.values():
            counts = snapshot.component(component.id)
            done = self._done(component.id, counts)
            rate = done / max(average_s, 1e-9) if average_s else self._rates.of(component.id)
            table.add_row(
                f"{component.id} × {component.parallelism}",
                *self._cells(component.id, counts, rate, snapshot),
                style="bold" if counts.failed else None,
            )
        return table

    def lines(self, snapshot: Snapshot) -> Iterator[str]:
        """One line a spout, for where there is no terminal."""
        for spout in self._graph.spouts:
            counts, rate = snapshot.component(spout.id), self._rates.of(spout.id)
            if not self._tracked:
                yield f"{spout.id}: {counts.emitted:,} emitted, {rate:,.0f}/s, untracked"
                continue
            line = f"{spout.id}: {counts.acked:,} acked, {counts.failed:,} failed"
            causes = ", ".join(f"{cause} {count:,}" for cause, count in counts.causes.items())
            line += f" ({causes}), " if causes else ", "
            line += f"{counts.replayed:,} replayed, " if counts.replayed else ""
            plural = "" if counts.dead == 1 else "s"
            line += f"{counts.dead:,} dead letter{plural}, " if counts.dead else ""
            line += f"{rate:,.0f}/s, pending {counts.pending:,}"
            slow_s = snapshot.latencies(spout.id).percentile(99)
            yield line + (f", p99 {duration(slow_s)}" if slow_s is not None else "")

    def figures(self, snapshot: Snapshot) -> Iterator[str]:
        """A line for each component whose code has figures of its own: the first one, those that
        are not 0, and no details; of a batch group one that says how its batches stand."""
        for id in self._graph.components:
            found = snapshot.figures(id)
            if found and (group := group_of(id)) is not None:
                yield standing(group, found, snapshot)
                continue
            sums = [(name, n) for name, n in found.items() if "/" not in name]
            shown = [f"{name} {n:,.6g}" for at, (name, n) in enumerate(sums) if n or not at]
            if shown:
                yield f"{id}: {', '.join(shown)}"

    def news(self, snapshot: Snapshot, now: float) -> Iterator[str]:
        """A line for each task that was quarantined since the last look, and for each component
        that began to wait for a dependency, or went on. `now`: as for `see`."""
        yield from self._waits.see(snapshot, now)
        self._quarantined &= snapshot.degraded.keys()  # one may be quarantined again
        for task, error in snapshot.degraded.items():
            if task not in self._quarantined:
                self._quarantined.add(task)
                yield quarantined(error)

    def _cells(
        self, component: str, counts: Counts, rate: float, snapshot: Snapshot
    ) -> Iterator[str]:
        is_spout = component in self._spouts
        yield f" {counts.emitted:,}"
        yield f"{counts.acked:,}"
        yield f"{counts.failed:,}"
        yield f"{counts.replayed:,}" if is_spout else ""
        yield f"{counts.pending:,}" if is_spout else ""
        yield f"{rate:,.0f}"
        latencies = snapshot.latencies(component)
        for percent in (50, 99):
            seconds = latencies.percentile(percent)
            yield "" if seconds is None else duration(seconds)

    def _done(self, component: str, counts: Counts) -> int:
        if component not in self._spouts:
            return counts.executed
        return counts.acked if self._tracked else counts.emitted


def duration(seconds: float) -> str:
    """Two figures: `0.13 s`, `4.2 ms`, `85 µs`, `12 s`."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        value = seconds * factor
        if value >= (0.1 if unit == "s" else 1.0):
            digits = max(0, 1 - int(f"{value:e}".split("e")[1]))
            return f"{value:.{digits}f} {unit}"
    return "0 s"
