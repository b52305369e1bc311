"""A savepoint: the positions and states in memory of a topology's tasks, for a later run.

It has the TaskTransfer of each task, as a rebalance moves it: positions of spouts, messages to emit
again with their charged attempts, results of `snapshot`. What is in stores stays there. Flink:
savepoints, https://nightlies.apache.org/flink/flink-docs-stable/docs/ops/state/savepoints/.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import asdict, astuple, dataclass, fields, replace
from zlib import crc32

import msgpack

from sunshower import versions
from sunshower.errors import LifecycleError
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.placement import unused, with_present_numbers
from sunshower.runtime.events.health import Standing
from sunshower.runtime.events.metrics import TaskStats
from sunshower.runtime.plan import Plan, Task, numbered
from sunshower.topologies.graph import Component, Level, can_move
from sunshower.topologies.logs import LogSpout
from sunshower.topologies.operators.compiled_stage import OperatorBolt
from sunshower.topologies.operators.state_shapes import COMPARED, states_of

MOVE = 1  # a resumed run begins as if its tasks had just moved for the first time
_KEEPS_NOTHING = (Level.FUNCTION, Level.ANSWERS)
_START_OVER = "submit the topology without --resume to start over"


@dataclass(frozen=True)
class KeptComponent:
    """What the code that resumes a component must have in common with the old code."""

    level: str
    parallelism: int
    kind: str  # the name of its class; of operators: empty
    shapes: Mapping[str, list[str]]  # state → what StateShape compares, as texts
    # state → StoredValues.shapes; None: of a release that described the records in `shapes`
    records: Mapping[str, Mapping[str, list[str]]] | None = None
    deployment: str = ""  # of a LogSpout, by which it finds its stored positions
    described: Mapping[str, str] | None = None  # state → what its values are; None: not known

    @staticmethod
    def of(component: Component) -> KeptComponent:
        """The description of a component."""
        code = component.implementation
        kind = code if isinstance(code, type) else type(code)
        states = states_of(component)
        return KeptComponent(
            component.level.value,
            component.parallelism,
            "" if kind is OperatorBolt else kind.__qualname__,
            {name: [*map(repr, shape.compared)] for name, shape in states.items()},
            {name: shape.values.shapes() for name, shape in states.items() if shape.values},
            code.deployment if isinstance(code, LogSpout) else "",
            {name: shape.described for name, shape in states.items()},
        )

    def continued(self, component: Component) -> Component:
        """The component of the new code; a LogSpout is of the same deployment as in the old one."""
        code = component.implementation
        if not self.deployment or not isinstance(code, LogSpout):
            return component
        code = copy(code)
        code.deployment = self.deployment
        return replace(component, implementation=code)

    def problems(self, name: str, present: Component | None) -> Iterator[str]:
        """Why a component of the new code cannot continue; `name`: of the component."""
        if present is None:
            yield f"it has {name!r}, which the code does not have"
            return
        now = KeptComponent.of(present)
        if getattr(present.implementation, "can_rescale", False):
            now = replace(now, parallelism=self.parallelism)
        if (self.level, self.kind) != (now.level, now.kind):
            yield f"{name!r} is another kind of component in the code"
        elif self.parallelism != now.parallelism:
            yield f"{name!r} has {self.parallelism} tasks in it, and {now.parallelism} in the code"
        else:
            states = states_of(present)
            for state, shape in self.shapes.items():
                if (other := states.get(state)) is None:
                    yield f"{name!r} has no state {state!r} in the code"
                    continue
                pairs = zip(COMPARED, shape, now.shapes[state], strict=False)
                how = [part for part, old, new in pairs if old != new]
                if self.described is not None and self.described[state] != other.described:
                    how = how or ["values"]
                if self.records is not None and not how:
                    how = other.different_records(self.records.get(state, {}))
                if how:
                    yield f"the state {state!r} of {name!r} differs in its {' and '.join(how)}"


@dataclass(frozen=True)
class Savepoint:
    """The positions and states of a topology that was ended. `transfers`: task id → its pickled
    TaskTransfer."""

    topology: str
    tasks: tuple[Task, ...]
    components: Mapping[str, KeptComponent]  # those that have positions or may have states
    positions: Mapping[int, int]  # as in MasterState, like all that follow
    drawn: Mapping[int, int]
    last_task_id: int
    proven: tuple[str, ...]
    transfers: Mapping[int, bytes]

    @staticmethod
    def of(plan: Plan, stored: MasterState) -> Savepoint:
        """The savepoint of a topology whose tasks are packed, without their TaskTransfers."""
        return Savepoint(
            plan.graph.id,
            plan.tasks,
            {
                name: KeptComponent.of(component)
                for name, component in plan.graph.components.items()
                if component.level not in _KEEPS_NOTHING
            },
            dict(stored.positions),
            dict(stored.drawn),
            stored.last_task_id,
            tuple(sorted(stored.proven)),
            {},
        )

    def resumed(self, given: Plan) -> Plan:
        """The plan of `given` code, whose tasks have the ids that they had. Raises LifecycleError
        with everything that does not fit."""
        given = with_present_numbers(given, self.tasks)
        if problems := list(self._problems(given)):
            raise LifecycleError(
                f"topology {given.graph.id!r} cannot continue from this savepoint: "
                f"{'; '.join(problems)}. Give it the code that fits, or {_START_OVER}"
            )
        components = {
            name: self.components[name].continued(component)
            if name in self.components
            else component
            for name, component in given.graph.components.items()
        }
        graph = replace(given.graph, components=components)
        tasks = numbered(given.tasks, self.tasks, self.last_task_id)
        return replace(given, graph=graph, tasks=tasks)

    def master_state(self, plan: Plan, *, active: bool) -> MasterState:
        """With what the master of the resumed run begins."""
        return MasterState(
            positions=dict(self.positions),
            drawn=dict(self.drawn),
            proven=set(self.proven) & plan.graph.components.keys(),
            active=active,
            moves=MOVE,
            last_task_id=max(self.last_task_id, *(task.id for task in plan.tasks)),
        )

    def to_bytes(self) -> bytes:
        """The savepoint for a file."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["tasks"] = [astuple(task) for task in self.tasks]
        values["components"] = {name: asdict(item) for name, item in self.components.items()}
        body = msgpack.packb(values)
        return versions.stamp(versions.SAVEPOINT, crc32(body).to_bytes(4) + body)

    @staticmethod
    def from_bytes(name: str, data: bytes) -> Savepoint:
        """The savepoint that `to_bytes` has encoded; `name`: of its file. Raises LifecycleError for
        other or damaged data, VersionMismatch for another version."""
        remedy = "continue it with the release that has written it"
        data = versions.unstamp(name, data, versions.SAVEPOINT, remedy)
        try:
            if crc32(body := data[4:]).to_bytes(4) != data[:4]:
                raise ValueError("its checksum does not fit its content")
            stored = msgpack.unpackb(body, strict_map_key=False)
            tasks = tuple(Task(*row) for row in stored.pop("tasks"))
            components = {
                name: KeptComponent(**values) for name, values in stored.pop("components").items()
            }
            return Savepoint(tasks=tasks, components=components, **stored)
        except (ValueError, TypeError, KeyError) as error:
            raise LifecycleError(
                f"{name} is not a valid savepoint ({error}); `sunshower kill NAME --keep FILE` "
                "writes one"
            ) from error

    def _problems(self, given: Plan) -> Iterator[str]:
        if self.topology != given.graph.id:
            yield f"it is one of {self.topology!r}"
            return
        for name, former in self.components.items():
            yield from former.problems(name, given.graph.components.get(name))


@dataclass(frozen=True)
class PackedTasks:
    """A savepoint whose TaskTransfers are still in the store. Whoever has asked for it reads them
    itself: they may be large, and the master has other calls to answer."""

    savepoint: Savepoint
    move: int  # the number of the rebalance under which they are stored
    open: frozenset[int]  # the tasks that were open, each of which has one

    @staticmethod
    def of(plan: Plan, stored: MasterState, tasks: Iterable[TaskStats]) -> PackedTasks:
        """`tasks`: their statistics when they were packed."""
        running = {
            task.task
            for task in tasks
            if task.health.standing is Standing.RUNNING and task.health.wait is None
        }
        return PackedTasks(Savepoint.of(plan, stored), stored.moves + 1, frozenset(running))

    def with_transfers(self, read: Callable[[int], bytes | None]) -> Savepoint:
        """The whole savepoint. `read`: returns the pickled TaskTransfer of the task with this id,
        None if there is none. Raises LifecycleError if one is missing: only a task that was never
        open, because it waits or is quarantined, has none."""
        savepoint = self.savepoint
        tasks = [task for task in savepoint.tasks if task.component in savepoint.components]
        transfers = {task.id: read(task.id) for task in tasks}
        if missing := [t for t in tasks if transfers[t.id] is None and t.id in self.open]:
            names = ", ".join(task.name for task in missing)
            raise LifecycleError(
                f"topology {savepoint.topology!r} has no savepoint: what {names} had in memory "
                "is no longer stored. Try again"
            )
        whole = {id: packed for id, packed in transfers.items() if packed is not None}
        return replace(savepoint, transfers=whole)


def all_elsewhere(plan: Plan, taken: Collection[int]) -> list[Task]:
    """All tasks on new workers, so that all of them are packed; `taken`: workers that may have a
    process. Raises LifecycleError for what cannot be packed."""
    held = [name for name, component in plan.graph.components.items() if not can_move(component)]
    if held:
        raise LifecycleError(
            f"topology {plan.graph.id!r} cannot be kept: the state of {', '.join(held)} is in "
            f"memory. Write snapshot() and restore(state) for {held[0]!r}, or kill the topology "
            "without --keep; nothing has been changed"
        )
    numbers = unused({*plan.workers, *taken}, len(plan.workers))
    places = dict(zip(plan.workers, numbers, strict=True))
    return [replace(task, worker=places[task.worker]) for task in plan.tasks]
