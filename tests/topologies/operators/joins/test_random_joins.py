"""Random runs of one task of a join, against all pairs of a plain program.

Batches and watermarks come in random order, some fail and come again, and the operator is opened
again, from a store or with what it had in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from math import inf
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from sunshower import Context, Records, Topology
from sunshower.clock import ManualClock
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.windows.watermarks import Watermark
from tests.seeds import seed_ranges
from tests.topologies.operators.kinds import Kept

LATE, KEYS = 3, "ab"


class Left(NamedTuple):
    key: str
    number: int
    at: float
    until: float


class Right(NamedTuple):
    key: str
    number: int | None  # None: of a table: a removal
    at: float


Within = dict[str, Any]
BOUNDS: dict[str, tuple[Within, Callable[[Left, Right], bool]]] = {
    "near": ({"within": 2}, lambda a, b: abs(a.at - b.at) <= 2),
    "same": ({"within": 0}, lambda a, b: a.at == b.at),
    "after": ({"within": (0, 2.5)}, lambda a, b: a.at <= b.at <= a.at + 2.5),
    "before": ({"within": (1.1, 0.1)}, lambda a, b: -1.1 <= b.at - a.at <= 0.1),
    "until": (
        {"within": lambda a: (a.at, a.until)},
        lambda a, b: a.at <= b.at <= a.until,
    ),
    "all": ({"keep_s": None}, lambda *_: True),
}
AS_OF: dict[str, dict[str, Any]] = {"as of": {}, "as of, for 2": {"valid_for": 2}}
HOWS = ("inner", "left", "outer", "semi", "anti")
CASES = [
    (how, name) for how in HOWS for name in BOUNDS if name != "all" or how in ("inner", "semi")
]
CASES += [(how, name) for name in AS_OF for how in ("inner", "left")]


def model(left: list[Left], right: list[Right], how: str, bounds: str) -> Counter[Any]:
    """Return (number of the left record, of the right one) → how often a plain program has it."""
    if bounds in AS_OF:
        return model_as_of(left, right, how, AS_OF[bounds].get("valid_for", inf))
    are_partners = BOUNDS[bounds][1]
    pairs = [(a, b) for a in left for b in right if a.key == b.key and are_partners(a, b)]
    matched = {record for pair in pairs for record in pair}
    counts = Counter((a.number, b.number) for a, b in pairs)
    if how in ("semi", "anti"):
        return Counter((a.number,) for a in left if (a in matched) == (how == "semi"))
    if how != "inner":
        counts.update((a.number, None) for a in left if a not in matched)
    if how == "outer":
        counts.update((None, b.number) for b in right if b not in matched)
    return counts


def model_as_of(left: list[Left], right: list[Right], how: str, valid_for: float) -> Counter[Any]:
    counts = Counter[Any]()
    for a in left:
        versions = [b for b in right if a.key == b.key and b.at <= a.at]
        version = max(versions, key=lambda b: (b.at, repr([b.number, b.at])), default=None)
        if version is not None and version.number is not None and a.at - version.at <= valid_for:
            counts[a.number, version.number] += 1
        elif how == "left":
            counts[a.number, None] += 1
    return counts


class Rig:
    """One task of a join, its sources, and what has left it."""

    def __init__(self, draw: Random, how: str, bounds: str, state: Any) -> None:
        self.draw, self.how, self.state = draw, how, state
        times: Any = {} if bounds == "all" else {"field": "at", "late": LATE}
        within: Any = BOUNDS[bounds][0] if bounds in BOUNDS else AS_OF[bounds]
        fields: Any = {"fields": ("key", "a", "at", "until", "b", "then")}
        topology = Topology("joins")
        left = topology.spout("left", Records([], type=Left))
        right = topology.spout("right", Records([], type=Right))
        other: Any = right
        if bounds in AS_OF:
            other = right.group_by("key").table(field="at")
            times = {"as_of": "at", "late": LATE}
        rows = left.join(
            other,
            "key",
            how=how,
            state=state,
            name="join",
            **within,
            **times,
            **(fields if how not in ("semi", "anti") else {}),
        )
        rows.shuffle().bolt("kept", Kept)
        components = topology.graph().components
        self.code: Any = components["join"].implementation
        self.inputs: Any = [
            components[f"join-{side}"].implementation.steps[0] for side in ("left", "right")
        ]
        self.counts, self.is_exact = Counter[Any](), True
        self.owes_once = True  # a process that has died may bring what was owed again
        self.clock = ManualClock()
        self.marks = [Marks(task) for task in (0, 1)]
        self.open(None)

    def open(self, memory: Any) -> None:
        """Open the operator as in a new process."""
        self.join = deepcopy(self.code).operators[0]
        self.join.prepare(Context("joins", "join", 1, 0, 1, clock=self.clock))
        if memory is not None:
            self.join.restore(memory)

    def count(self, outputs: list[Any]) -> None:
        for branch, record in outputs:
            assert branch == 0, f"{record} is late"
            places = (1,) if self.how in ("semi", "anti") else (1, 4)
            self.counts[tuple(record[place] for place in places)] += 1

    def run(self, records: list[tuple[int, Any]]) -> None:
        """Process records of both sides, in this order, and end the sources."""
        waiting, done = [*records], list[tuple[int, Any]]()
        while waiting:
            action = self.draw.random()
            if action < 0.5:
                self.process(waiting, done)
            elif action < 0.9:
                self.advance(waiting, done)
            else:
                memory = self.join.snapshot()
                self.join.cleanup()
                self.open(memory)
                self.owes_once = False
        for _ in range(3):  # owed rows may be those of a mark that has failed
            for marks in self.marks:
                marks.ended = True
                self.advance([], done, marks, may_fail=False)

    def process(self, waiting: list[tuple[int, Any]], done: list[tuple[int, Any]]) -> None:
        batch = [waiting.pop(0) for _ in range(min(len(waiting), self.draw.randint(1, 4)))]
        rows = [row for side, record in batch for row in self.inputs[side].expand(record)]
        self.join.announce(rows)
        fails = self.draw.random() < 0.1
        outputs = [row for each in rows for row in self.join.expand(each)]
        if fails:
            self.join.discard()
        else:
            self.join.flush()
            fails = self.draw.random() < 0.1  # behind the join
            self.is_exact &= not fails
        if fails:
            waiting[:] = [*waiting[:2], *batch, *waiting[2:]]
        else:
            self.count(outputs)
            done += batch

    def advance(
        self,
        waiting: list[tuple[int, Any]],
        done: list[tuple[int, Any]],
        marks: Marks | None = None,
        *,
        may_fail: bool = True,
    ) -> None:
        chosen = marks or self.draw.choice(self.marks)
        mine = [record.at for side, record in done if side == chosen.task]
        pending = min((record.at for _, record in waiting), default=inf)
        outputs = self.join.advance([chosen.next(pending, max(mine, default=-inf))])
        if may_fail and self.draw.random() < 0.2:
            is_dead = self.draw.random() < 0.3
            chosen.failed(is_dead)
            self.owes_once &= not is_dead
        else:
            chosen.done()
            self.count(outputs)


class Marks:
    """The watermarks of one spout task."""

    def __init__(self, task: int) -> None:
        self.task, self.life, self.number, self.attempt, self.confirmed = task, 1, 1, 1, 0
        self.ended = False

    def next(self, pending: float, reached: float) -> Watermark:
        about = self.task, self.life, self.number, self.attempt, self.confirmed
        return Watermark(*about, pending, reached, idle=False, ended=self.ended, newest=reached)

    def failed(self, is_dead: bool) -> None:
        if is_dead:  # the spout task restarts
            self.life, self.number, self.attempt, self.confirmed = self.life + 1, 1, 1, 0
        else:
            self.attempt += 1

    def done(self) -> None:
        self.confirmed, self.number, self.attempt = self.number, self.number + 1, 1


def records_of(
    draw: Random, *, has_removals: bool
) -> tuple[list[Left], list[Right], list[tuple[int, Any]]]:
    """Return random records of both sides, and all in an order in which none is late."""
    span = draw.choice([4, 12, 40])
    times = [draw.randrange(span * 4) / 4 for _ in range(draw.randrange(40))]
    left, right = list[Left](), list[Right]()
    for number, at in enumerate(times):
        key, length = draw.choice(KEYS), draw.choice([0, 0, 0.5, 1, 3, 3.5, 30])
        if draw.random() < 0.5:
            left.append(Left(key, number, at, at + length))
        else:
            is_removal = has_removals and draw.random() < 0.2
            right.append(Right(key, None if is_removal else number, at))
    sides: list[list[Any]] = [left, right]
    queues = [sorted(side, key=lambda record: record.at + draw.random() * LATE) for side in sides]
    merged = list[tuple[int, Any]]()
    while any(queues):
        side = draw.choice([n for n in (0, 1) if queues[n]])
        merged.append((side, queues[side].pop(0)))
    return left, right, merged


def state_of(kind: str, folder: Path, name: str) -> Any:
    return {"memory": MemoryState(), "sqlite": SqliteState(folder / f"{name}.db")}.get(kind)


def is_pair(row: tuple[Any, ...]) -> bool:
    return len(row) == 2 and None not in row


@seed_ranges(120, few=4, size=4)
@pytest.mark.parametrize("kind", ["task", "memory", "sqlite"])
def test_random_joins_have_the_records_of_a_plain_program(
    seeds: range, kind: str, tmp_path: Path
) -> None:
    for seed in seeds:
        for how, bounds in CASES if kind == "task" else CASES[seed % 3 :: 3]:
            draw = Random(f"{seed} {how} {bounds} {kind}")
            left, right, records = records_of(draw, has_removals=bounds in AS_OF)
            rig = Rig(draw, how, bounds, state_of(kind, tmp_path, f"{seed}-{how}-{bounds}"))
            rig.run(records)
            expected, about = model(left, right, how, bounds), f"{seed}, {kind}, {how}, {bounds}"
            assert rig.counts.keys() == expected.keys(), about
            assert not expected - rig.counts, about
            if rig.is_exact:
                pairs_once = bounds not in AS_OF
                once = {row for row in expected if rig.owes_once or (pairs_once and is_pair(row))}
                assert all(rig.counts[row] == expected[row] for row in once), about
            waiting = [key for key, _ in rig.join.store.entries() if key[0] == "waiting"]
            if bounds in AS_OF:
                waiting = [key for key in waiting if key[2] == 0]
            assert bounds == "all" or not waiting, about
