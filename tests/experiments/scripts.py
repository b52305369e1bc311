"""Builds small histories: each event is one call with its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from sunshower.experiments.event_history import History
from sunshower.experiments.outcome import Facts
from sunshower.runtime.events.event_log import Entry, What

SPOUT, RELAY, SINK = 1, 2, 3
TASKS = {SPOUT: "numbers[0]", RELAY: "relay[0]", SINK: "sink[0]"}
FACTS = Facts(tasks=TASKS, spouts=(SPOUT,), counted=frozenset({SPOUT}), places={SPOUT: (0, 0)})


def root(number: int, generation: int = 1, incarnation: int = 1) -> int:
    """The root of message `number`, which has a slot of its own."""
    return incarnation << 48 | generation << 24 | number


class Script:
    """numbers ──▶ relay ──▶ sink, one task each. Each call advances the time by 1 ms."""

    def __init__(self) -> None:
        self.at_s = 100.0
        self.entries: list[Entry] = []

    def wait(self, seconds: float) -> Self:
        self.at_s += seconds
        return self

    def add(
        self,
        what: What,
        task: int = 0,
        roots: Sequence[int] = (),
        values: Sequence[int] = (),
        attempts: Sequence[int] = (),
        detail: Any = None,
    ) -> Self:
        self.at_s += 0.001
        edges = what in (What.SENT, What.DELIVERED, What.ACKED, What.REFUSED)
        entry = Entry(
            self.at_s,
            what,
            task,
            np.array(roots, np.uint64),
            np.array(values, np.uint64 if edges else np.int64),
            np.array(attempts, np.int64),
            detail,
        )
        self.entries.append(entry)
        return self

    def emitted(self, number: int, attempt: int = 1, incarnation: int = 1) -> Self:
        mine = root(number, attempt, incarnation)
        return self.add(What.EMITTED, SPOUT, [mine], [number], [attempt])

    def completed(self, number: int, attempt: int = 1, incarnation: int = 1) -> Self:
        mine = root(number, attempt, incarnation)
        return self.add(What.COMPLETED, SPOUT, [mine], [number], [attempt])

    def failed(self, number: int, attempt: int = 1, cause: str = "actor died") -> Self:
        mine = root(number, attempt)
        return self.add(What.FAILED, SPOUT, [mine], [number], [attempt], [cause])

    def sent(self, number: int, edge: int, source: int, target: int, attempt: int = 1) -> Self:
        return self.add(What.SENT, source, [root(number, attempt)], [edge], detail=target)

    def delivered(self, number: int, edge: int, task: int, attempt: int = 1) -> Self:
        return self.add(What.DELIVERED, task, [root(number, attempt)], [edge])

    def acked(self, number: int, edge: int, task: int, attempt: int = 1) -> Self:
        return self.add(What.ACKED, task, [root(number, attempt)], [edge])

    def refused(self, number: int, edge: int, task: int, attempt: int = 1) -> Self:
        return self.add(What.REFUSED, task, [root(number, attempt)], [edge], detail="exception")

    def wrote(self, key: Any, value: Any = None) -> Self:
        return self.add(What.WROTE, SINK, detail=(key, value))

    def fault(self, words: str = "kill relay[0]", for_s: float = 0.0) -> Self:
        self.add(What.BEGUN, detail=words)
        return self.wait(for_s).add(What.ENDED, detail=words)

    def whole(self, number: int, attempt: int = 1) -> Self:
        """All events of a message that reaches the sink and completes."""
        first, second = 1000 * number + 10 * attempt, 1000 * number + 10 * attempt + 1
        self.emitted(number, attempt).sent(number, first, SPOUT, RELAY, attempt)
        self.delivered(number, first, RELAY, attempt).sent(number, second, RELAY, SINK, attempt)
        self.acked(number, first, RELAY, attempt).delivered(number, second, SINK, attempt)
        self.wrote(number).acked(number, second, SINK, attempt)
        return self.completed(number, attempt)

    def history(self, cut: str | None = None) -> History:
        return History(self.entries, TASKS, 100.0, cut)
