"""Makes the plan of a rebalance to other numbers of tasks or acker shards; tasks keep their ids.

Only what keeps nothing in the memory of its tasks can have another number of them: functions, whose
records any task can process, states of operators in a store, which move to the new tasks when these
open them (sunshower/trident/states/moves.py), and objects whose `snapshot` returns None. A class
with `state=` chooses the keys itself, so no task is known to own one: it keeps its number. All
other tasks continue as in any rebalance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sunshower.errors import LifecycleError
from sunshower.runtime.control.placement import can_move
from sunshower.runtime.plan import ACKER, Plan, Task
from sunshower.topologies.graph import Component, Level, Subscription
from sunshower.topologies.groupings import All, Fields
from sunshower.topologies.operators.compiled_stage import OperatorBolt

AS_THEY_ARE: Mapping[str, int] = {}
_TASKS_MAX = 4096  # of one component: a higher number is refused as a mistake


def with_counts(plan: Plan, counts: Mapping[str, int], last_id: int = 0) -> Plan:
    """The plan with so many tasks of these components (ACKER: acker shards); `plan` itself if it
    has them. New tasks share the present workers, and have ids above `last_id`.

    Raises LifecycleError for a component that is not there, or cannot have so many tasks.
    """
    changed = {name: count for name, count in counts.items() if count != _count(plan, name)}
    if not changed:
        return plan
    for name, count in changed.items():
        if why := refusal(plan, name, count):
            raise LifecycleError(
                f"topology {plan.graph.id!r} cannot have {count} tasks of {name!r}: {why}; "
                "nothing has been changed"
            )
    tasks, last_id = list[Task](), max(last_id, *(task.id for task in plan.tasks))
    for name in [*plan.graph.components, ACKER]:
        own = plan.tasks_of(name)
        wanted = changed.get(name, len(own))
        tasks += own[:wanted]
        for index in range(len(own), wanted):
            last_id += 1
            worker = plan.workers[index % len(plan.workers)]
            tasks.append(Task(last_id, name, index, worker))
    return plan.with_tasks(sorted(tasks, key=lambda task: task.id))


def leaving(before: Plan, after: Plan) -> list[Task]:
    """The tasks whose user's object ends when `after` replaces `before`: those that go to another
    worker, or end, and those of components that are opened for another number of tasks."""
    places = {task.id: task.worker for task in after.tasks}
    changed = {task.component for task in ends_anew(before, after)}
    changed |= {name for one in changed for name in _direct_senders(before, one)}
    return [
        task
        for task in before.tasks
        if task.component in changed or places.get(task.id) != task.worker
    ]


def ends_anew(before: Plan, after: Plan) -> list[Task]:
    """The tasks of components with another number of tasks, whose objects take nothing along."""
    numbers = after.graph.components
    changed = {
        name for name, one in before.graph.components.items()
        if name not in numbers or numbers[name].parallelism != one.parallelism
    }  # fmt: skip
    return [task for task in before.tasks if task.component in changed]


def _count(plan: Plan, name: str) -> int:
    if name != ACKER and name not in plan.graph.components:
        raise LifecycleError(
            f"topology {plan.graph.id!r} has no component {name!r}; "
            f"it has: {', '.join(plan.graph.components)}"
        )
    return len(plan.tasks_of(name))


def refusal(plan: Plan, name: str, count: int) -> str | None:
    """Why a component cannot have so many tasks; None: it can."""
    if not 1 <= count <= _TASKS_MAX:
        return f"there can be 1 to {_TASKS_MAX:,}"
    if name == ACKER:
        is_tracked = plan.graph.config.tracked
        return None if is_tracked else "it was submitted with ackers=0, so nothing is tracked"
    component = plan.graph.components[name]
    if component.level is Level.ANSWERS:
        return "it answers the requests of one task, beside it"
    if component.level.is_spout:
        return (
            "each task of a spout has its own part of the source, and the position in it. Kill the "
            "topology, and submit it with another parallelism: it continues where its source has "
            "stored a position, as Kafka does, and else starts over"
        )
    if hasattr(component.implementation, BATCHES):
        return f"it belongs to an exactly-once program. {_AGAIN}"
    if kept := kept_in_memory(component):
        return f"{kept}, where no other task finds it. {_WAY_OUT}"
    if component.store is not None:
        return (
            "its class may choose other keys for its state than those of the grouping, and then "
            f"another task would not find them. If it uses those of the grouping: {_KILL}"
        )
    if _keeps_state(component) and not all(map(_is_spread, component.inputs)):
        return "its state has no key by which records find their task"
    return _direct_refusal(plan, name, count)


BATCHES = "__sunshower_batches__"  # the mark of classes of exactly-once programs
_KILL = "kill the topology and submit it with another parallelism"
_AGAIN = _KILL.capitalize()
_WAY_OUT = (
    "Give it a state= in a store; if it keeps nothing, write a snapshot() that returns None and a "
    f"restore(state); or {_KILL}"
)


def kept_in_memory(component: Component) -> str | None:
    """A clause that says what a bolt keeps in memory, or may keep; None: nothing, or the result of
    `snapshot` says what."""
    code = component.implementation
    if component.level in (Level.FUNCTION, Level.ANSWERS) or hasattr(code, "__sunshower_batch__"):
        return None
    if component.store is not None:
        names = [] if component.store.is_stored else [f"the state {component.store.name!r}"]
    elif isinstance(code, OperatorBolt):
        names = [*code.in_memory()]
    elif can_move(component):
        names = []
    else:
        return f"the object of {component.id!r} may keep something in memory"
    return f"{names[0]} of {component.id!r} is in memory" if names else None


def _keeps_state(component: Component) -> bool:
    code = component.implementation
    return isinstance(code, OperatorBolt) and any(
        hasattr(one, "snapshot") for one in code.operators
    )


def _is_spread(read: Subscription) -> bool:
    """Whether the fields of a record choose its task, or all tasks get it."""
    return isinstance(read.grouping, Fields | All)


def _direct_refusal(plan: Plan, name: str, count: int) -> str | None:
    senders = list(_direct_senders(plan, name))
    if senders and count < len(plan.tasks_of(name)):
        return (
            f"{senders[0]!r} sends to chosen tasks of it, and may have stored the id of a task "
            f"that would end. {_AGAIN}"
        )
    held = [one for one in senders if not can_move(plan.graph.components[one])]
    if held:
        return (
            f"{held[0]!r} sends to chosen tasks of it, and has to be opened again, but its state "
            "is in memory: write snapshot() and restore(state) for it"
        )
    return None


def _direct_senders(plan: Plan, name: str) -> Iterator[str]:
    """The components that choose tasks of a component by their ids."""
    inputs = () if name == ACKER else plan.graph.components[name].inputs
    for read in inputs:
        if plan.stream(read.source, read.stream).spec.direct:
            yield read.source
