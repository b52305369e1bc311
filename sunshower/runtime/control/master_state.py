"""The durable state of a master, from which the next master continues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

import msgpack

from sunshower import versions
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.metrics import (
    Counts,
    Latencies,
    LatencyKind,
    TaskStats,
    Totals,
    WorkerStats,
)
from sunshower.runtime.plan import Plan, Task
from sunshower.runtime.tasks.flight_recorder import CrashReport
from sunshower.texts import ERROR_BYTES, clip

T = TypeVar("T")
_LATENCIES = {  # the names under which the latencies of former lives are stored
    "latencies": LatencyKind.COMPLETE,
    "execute": LatencyKind.EXECUTE,
    "queue": LatencyKind.QUEUE,
}
_TASKS = ("tasks", "next_tasks", "former_tasks")
_CANCELLED_MAX = 8  # reasons that are kept
_WAY_OUT = "let all nodes have one release, kill the topology and submit it again"


@dataclass
class MasterState:
    """Kept in a store, without what workers report again (their counters)."""

    lives: dict[int, int] = field(default_factory=dict)  # worker → its latest life
    retired: dict[str, Totals] = field(default_factory=dict)  # component → of its former lives
    quarantined: dict[int, TaskError] = field(default_factory=dict)  # task → why
    positions: dict[int, int] = field(default_factory=dict)  # spout task → TaskStats.committed
    drawn: dict[int, int] = field(default_factory=dict)  # spout task → TaskStats.drawn
    suspects: dict[int, dict[int, int]] = field(default_factory=dict)  # spout task → message →
    # how often the task's own process died while executing a record of it
    proven: set[str] = field(default_factory=set)  # components that have succeeded once
    filled: set[str] = field(default_factory=set)  # spouts whose tables have been filled once
    fenced: dict[int, int] = field(default_factory=dict)  # worker → its life, which was replaced
    isolated: dict[int, int] = field(default_factory=dict)  # by an experiment: worker → its life
    restarts: int = 0  # hellos of workers that had said hello before
    active: bool = True  # spouts emit
    draining: bool = False  # spouts emit no new records
    killing: bool = False  # draining before the kill
    killed: bool = False
    error: str | None = None  # why the topology failed
    untracked: str | None = None  # the first failure of an untracked record in former lives
    wait_s: float = 0.0  # how long a kill or rebalance waits for pending trees
    tasks: list[Task] | None = None  # once they differ from those of the plan
    next_tasks: list[Task] | None = None  # during a rebalance or an upgrade
    packing: bool = False  # workers store the tasks that will move
    keeping: bool = False  # for a savepoint: what is packed does not move yet
    moves: int = 0  # rebalances and upgrades carried out
    floor: int = 0  # lives up to this one are from before the last move
    last_task_id: int = 0  # the highest id that any task has had; 0: that of the plan
    plan: int = 0  # the number of the plan: of the change that brought it; 0: as submitted
    next_plan: int | None = None  # during an upgrade
    former_plan: int | None = None  # while a plan is opening: the one to return to, …
    former_tasks: list[Task] | None = None  # … and its tasks
    open_s: float = 0.0  # how long the components of a new plan may take to open
    change: int = 0  # the number of the last requested rebalance or upgrade
    cancelled: dict[int, str] = field(default_factory=dict)  # the last changes that did not
    # happen → why
    held: list[str] = field(default_factory=list)  # numbers that a hand has set: see scaling.py
    layout: str | None = None  # that of the last change by hand, or of new code
    before_hand: dict[int, tuple[list[str], str | None]] = field(default_factory=dict)  # the last
    # change by hand → `held` and `layout` before it
    injected: InjectedFaults = field(default_factory=InjectedFaults)  # of an experiment
    unknown: dict[str, Any] = field(default_factory=dict)  # optional fields of another release

    def begin_life(self, worker: int) -> int:
        """A worker begins a life. Returns its number, which is above those of all earlier ones."""
        self.lives[worker] = max(self.lives.get(worker, 0), self.floor) + 1
        return self.lives[worker]

    def retire(self, last: WorkerStats) -> None:
        """Add the last statistics of a worker's life that is over."""
        self.untracked = self.untracked or last.untracked
        for task in last.tasks:
            name, ended = task.component, replace(task, counts=task.counts.closed())
            self.retired[name] = Totals.sum_of((self.retired.get(name, Totals()), ended.totals))

    def charge(self, report: CrashReport, plan: Plan) -> dict[int, int]:
        """Charge messages of a dead process's own spouts, whose `Pending` is lost. Returns, per
        spout task, the bound below which records may have been drawn."""
        for task, (drawn, _) in report.drawn.items():
            self.drawn[task] = max(drawn, self.drawn.get(task, 0))
        named = {s.id for s in plan.spouts if plan.component(s).level.keeps_numbers}
        for task in report.numbers.keys() & named if report.roots else ():
            counts = self.suspects.setdefault(task, {})
            for number in report.numbers[task]:
                counts[number] = counts.get(number, 0) + 1
        return {task: max(counts) for task, counts in report.drawn.items()}

    def inject(self, injected: InjectedFaults) -> None:
        """Note the injected faults, and which lives they cut off."""
        before = self.isolated
        self.isolated = {w: before.get(w, self.lives.get(w, 0)) for w in injected.isolated}
        self.injected = injected

    @property
    def is_changing(self) -> bool:
        """Whether tasks will move, or a new plan is opening: spouts emit nothing."""
        return bool(self.next_tasks) or self.is_opening

    @property
    def is_opening(self) -> bool:
        """Whether a new plan is in force whose components are not all open yet."""
        return self.former_plan is not None

    def keeps(self, number: int) -> bool:
        """Whether change `number` is a savepoint, and nothing has continued since it was packed."""
        return self.keeping and self.change == number

    def note_cancelled(self, why: str) -> None:
        """Note why the last requested change did not happen; what a hand has set with it, neither
        did."""
        self.held, self.layout = self.before_hand.pop(self.change, (self.held, self.layout))
        self.cancelled[self.change] = clip(why, ERROR_BYTES)
        for change in sorted(self.cancelled)[:-_CANCELLED_MAX]:
            del self.cancelled[change]

    def keep_position(self, task: TaskStats) -> None:
        """Keep the maximum: a new life may report less than a former one for a while."""
        for positions, reported in ((self.positions, task.committed), (self.drawn, task.drawn)):
            if reported > positions.get(task.task, 0):
                positions[task.task] = reported
        suspects = self.suspects.get(task.task, {})
        for number in [number for number in suspects if number < task.committed]:
            del suspects[number]

    @property
    def other_plan(self) -> int | None:
        """The number of the plan that may replace the present one; None: none may."""
        return self.next_plan if self.former_plan is None else self.former_plan

    def forget_former_code(self) -> None:
        """Forget what was learnt about the code of the former plan."""
        self.quarantined, self.suspects = {}, {}
        self.proven = set()

    def forget_all_but(self, plan: Plan) -> None:
        """Forget what belongs to other tasks and components, which are no longer there."""
        if self.former_plan is not None:
            return  # until the plan has proved good
        by_task: tuple[dict[int, Any], ...] = (
            self.quarantined, self.positions, self.drawn, self.suspects,
        )  # fmt: skip
        for values in by_task:
            for task in values.keys() - {task.id for task in plan.tasks}:
                del values[task]
        for name in self.retired.keys() - plan.graph.components.keys():
            del self.retired[name]

    def totals(self, workers: Iterable[WorkerStats]) -> dict[str, Totals]:
        """What each component has done since the topology was submitted; `workers`: those of
        now."""
        parts = {component: [totals] for component, totals in self.retired.items()}
        for worker in workers:
            for task in worker.tasks:
                parts.setdefault(task.component, []).append(task.totals)
        return {component: Totals.sum_of(counts) for component, counts in parts.items()}

    def to_bytes(self) -> bytes:
        """The state as MessagePack."""
        values = {  # asdict() of all of it takes ten times as long
            **self.unknown,
            **vars(self),
            "retired": {name: totals.counts.to_fields() for name, totals in self.retired.items()},
            **{
                stored: {
                    name: totals.latencies[kind].to_fields()
                    for name, totals in self.retired.items()
                    if kind in totals.latencies
                }
                for stored, kind in _LATENCIES.items()
            },
            **{name: _rows_of(getattr(self, name)) for name in _TASKS},
            "proven": sorted(self.proven),
            "filled": sorted(self.filled),
            "quarantined": {task: asdict(why) for task, why in self.quarantined.items()},
            "injected": self.injected.to_fields(),
        }
        del values["unknown"]
        return versions.stamp(
            versions.MASTER_STATE, msgpack.packb(values, unicode_errors="surrogatepass")
        )

    @staticmethod
    def from_bytes(data: bytes) -> MasterState:
        """The state that `to_bytes` has encoded. Raises VersionMismatch."""
        data = versions.unstamp("the state of the master", data, versions.MASTER_STATE, _WAY_OUT)
        stored = msgpack.unpackb(data, strict_map_key=False, unicode_errors="surrogatepass")
        measured = {kind: stored.pop(name, {}) for name, kind in _LATENCIES.items()}
        known = {item.name for item in fields(MasterState)}
        unknown = {name: stored.pop(name) for name in stored.keys() - known}
        retired = {
            name: Totals(
                Counts.from_fields(item),
                {
                    kind: Latencies(*latencies[name])
                    for kind, latencies in measured.items()
                    if name in latencies
                },
            )
            for name, item in stored.get("retired", {}).items()
        }
        quarantined = stored.get("quarantined", {}).items()
        injected = stored.get("injected")
        whole = {
            "retired": retired,
            **{
                name: None if (rows := stored.get(name)) is None else [Task(*row) for row in rows]
                for name in _TASKS
            },
            "quarantined": {task: _made(TaskError, why) for task, why in quarantined},
            "injected": InjectedFaults.from_fields(injected) if injected else InjectedFaults(),
            "proven": set(stored.get("proven", ())),
            "filled": set(stored.get("filled", ())),
        }
        return MasterState(**{**stored, **whole, "unknown": unknown})


def _rows_of(tasks: list[Task] | None) -> list[tuple[Any, ...]] | None:
    if tasks is None:
        return None
    return [(task.id, task.component, task.index, task.worker) for task in tasks]


def _made(kind: type[T], values: dict[str, Any]) -> T:
    """A value of a dataclass, without fields of another release."""
    known = {setting.name for setting in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in known})
