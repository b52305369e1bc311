"""The durable state of a master, from which the next master continues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

import msgpack

from sunshower import versions
from sunshower.runtime.control.crash_report import CrashReport
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.latencies import Latencies, LatencyKind
from sunshower.runtime.events.metrics import Counts, TaskStats, WorkerStats
from sunshower.runtime.events.time_windows import Totals, add_up
from sunshower.runtime.plan import Plan, Task
from sunshower.runtime.tasks.user_code import TaskError
from sunshower.texts import ERROR_BYTES, clip

T = TypeVar("T")
_LATENCIES = ("latencies", "execute", "queue")
_TASKS = ("tasks", "next_tasks", "former_tasks")
_CANCELLED_MAX = 8  # reasons that are kept
_WAY_OUT = "let all nodes have one release, kill the topology and submit it again"


@dataclass
class MasterState:
    """Kept in a store, without what workers report again (their counters)."""

    lives: dict[int, int] = field(default_factory=dict)  # worker → its latest life
    retired: dict[str, Counts] = field(default_factory=dict)  # counters of former lives
    quarantined: dict[int, TaskError] = field(default_factory=dict)  # task → why
    positions: dict[int, int] = field(default_factory=dict)  # spout task → TaskStats.committed
    drawn: dict[int, int] = field(default_factory=dict)  # spout task → TaskStats.drawn
    suspects: dict[int, dict[int, int]] = field(default_factory=dict)  # spout task → message →
    # how often the task's own process died while executing a record of it
    proven: set[str] = field(default_factory=set)  # components that have succeeded once
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
    injected: InjectedFaults = field(default_factory=InjectedFaults)  # of an experiment
    latencies: dict[str, Latencies] = field(default_factory=dict)  # of spouts in former lives
    execute: dict[str, Latencies] = field(default_factory=dict)  # of bolts in former lives; see
    queue: dict[str, Latencies] = field(default_factory=dict)  # LatencyKind
    unknown: dict[str, Any] = field(default_factory=dict)  # optional fields of another release

    def retire(self, last: WorkerStats) -> None:
        """Add the last statistics of a worker's life that is over."""
        self.untracked = self.untracked or last.untracked
        for task in last.tasks:
            name = task.component
            self.retired[name] = self.retired.get(name, Counts()) + task.counts.closed()
            for kind, latencies in task.latencies_by_kind.items():
                kept = self.latencies_by_kind[kind]
                kept[name] = kept.get(name, Latencies()) + latencies

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
        return {task: max(found) for task, found in report.drawn.items()}

    def inject(self, injected: InjectedFaults) -> None:
        """Note the injected faults, and which lives they cut off."""
        before = self.isolated
        self.isolated = {w: before.get(w, self.lives.get(w, 0)) for w in injected.isolated}
        self.injected = injected

    @property
    def is_changing(self) -> bool:
        """Whether tasks will move, or a new plan is opening: spouts emit nothing."""
        return bool(self.next_tasks) or self.former_plan is not None

    def keeps(self, number: int) -> bool:
        """Whether change `number` is a savepoint, and nothing has gone on since it was packed."""
        return self.keeping and self.change == number

    def note_cancelled(self, why: str) -> None:
        """Note why the last requested change did not happen."""
        self.cancelled[self.change] = clip(why, ERROR_BYTES)
        for change in sorted(self.cancelled)[:-_CANCELLED_MAX]:
            del self.cancelled[change]

    def keep_position(self, task: TaskStats) -> None:
        """Keep the maximum: a new life may report less than a former one for a while."""
        for kept, reported in ((self.positions, task.committed), (self.drawn, task.drawn)):
            if reported > kept.get(task.task, 0):
                kept[task.task] = reported
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
        for kept in by_task:
            for task in kept.keys() - {task.id for task in plan.tasks}:
                del kept[task]
        retired: tuple[dict[str, Any], ...] = (self.retired, *self.latencies_by_kind.values())
        for by_name in retired:
            for name in by_name.keys() - plan.graph.components.keys():
                del by_name[name]

    @property
    def latencies_by_kind(self) -> dict[LatencyKind, dict[str, Latencies]]:
        """The latencies of former lives, by kind and component."""
        return {
            LatencyKind.COMPLETE: self.latencies,
            LatencyKind.EXECUTE: self.execute,
            LatencyKind.QUEUE: self.queue,
        }

    def totals(self, workers: Iterable[WorkerStats]) -> dict[str, Totals]:
        """What each component has done since the topology was submitted; `workers`: those of
        now."""
        by_kind = self.latencies_by_kind
        retired = {
            name: Totals(counts, {k: own[name] for k, own in by_kind.items() if name in own})
            for name, counts in self.retired.items()
        }
        return add_up(retired, (task for worker in workers for task in worker.tasks))

    def to_bytes(self) -> bytes:
        """The state as MessagePack."""
        values = {  # asdict() of all of it takes ten times as long
            **self.unknown,
            **vars(self),
            "retired": {name: counts.to_fields() for name, counts in self.retired.items()},
            **{name: _fields_of(getattr(self, name)) for name in _LATENCIES},
            **{name: _rows_of(getattr(self, name)) for name in _TASKS},
            "proven": sorted(self.proven),
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
        found = msgpack.unpackb(data, strict_map_key=False, unicode_errors="surrogatepass")
        known = {one.name for one in fields(MasterState)}
        unknown = {name: found.pop(name) for name in found.keys() - known}
        retired = {name: Counts.from_fields(one) for name, one in found.get("retired", {}).items()}
        quarantined = found.get("quarantined", {}).items()
        injected = found.get("injected")
        whole = {
            "retired": retired,
            **{
                kind: {name: Latencies(*one) for name, one in found.get(kind, {}).items()}
                for kind in _LATENCIES
            },
            **{
                name: None if (rows := found.get(name)) is None else [Task(*row) for row in rows]
                for name in _TASKS
            },
            "quarantined": {task: _made(TaskError, why) for task, why in quarantined},
            "injected": InjectedFaults.from_fields(injected) if injected else InjectedFaults(),
            "proven": set(found.get("proven", ())),
        }
        return MasterState(**{**found, **whole, "unknown": unknown})


def _fields_of(latencies: dict[str, Latencies]) -> dict[str, Any]:
    return {component: one.to_fields() for component, one in latencies.items()}


def _rows_of(tasks: list[Task] | None) -> list[tuple[Any, ...]] | None:
    if tasks is None:
        return None
    return [(task.id, task.component, task.index, task.worker) for task in tasks]


def _made(kind: type[T], values: dict[str, Any]) -> T:
    """A value of a dataclass, without fields of another release."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in known})
