"""The plan of an upgrade: new code for a running topology, whose tasks keep their ids and states.

What has a state must be there afterwards, with a state that fits: under the same name, in the same
store, with the same key, types and version. What cannot be checked (memory of a bolt's object) goes
through its snapshot() and restore(). All workers are new: no process has code of both versions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from copy import copy
from dataclasses import replace

from sunshower.errors import LifecycleError
from sunshower.runtime.control.placement import can_move, unused
from sunshower.runtime.control.plan_changes import refusal
from sunshower.runtime.plan import ACKER, Plan, Task
from sunshower.topologies.graph import Component, Level
from sunshower.topologies.operators.compiled_stage import OperatorBolt
from sunshower.topologies.operators.state_shapes import states_of

_AGAIN = "kill the topology and submit it: what is in stores stays there"


def upgraded(before: Plan, given: Plan, taken: Iterable[int]) -> Plan:
    """The plan of `given` code that follows `before`. `taken`: workers that may have a process.

    Raises LifecycleError with everything that does not fit.
    """
    if problems := list(_problems(before, given)):
        raise LifecycleError(
            f"topology {before.graph.id!r} cannot be upgraded: {'; '.join(problems)}. "
            "Nothing has been changed"
        )
    ids = {(task.component, task.index): task.id for task in before.tasks}
    numbers = unused({*before.workers, *taken}, len(given.workers))
    worker_of = dict(zip(given.workers, numbers, strict=True))
    tasks, last_id = list[Task](), before.last_id
    for task in given.tasks:
        id = ids.get((task.component, task.index))
        if id is None:
            id = last_id = last_id + 1
        tasks.append(replace(task, id=id, worker=worker_of[task.worker]))
    former = before.graph.components
    components = {
        name: _continued(former[name], one) if name in former else one
        for name, one in given.graph.components.items()
    }
    return replace(
        given,
        graph=replace(given.graph, components=components),
        tasks=tuple(sorted(tasks, key=lambda task: task.id)),
        last_id=last_id,
    )


def _continued(old: Component, new: Component) -> Component:
    """The new component. If each declaration is a deployment with offsets of its own, as of Kafka,
    it is the former deployment."""
    deployment = getattr(old.implementation, "deployment", None)
    if deployment is None or not hasattr(new.implementation, "deployment"):
        return new
    code = copy(new.implementation)
    code.deployment = deployment
    return replace(new, implementation=code)


def changes(before: Plan, after: Plan) -> list[str]:
    """What an upgrade or a rebalance changes, a line each, for users."""
    old, new = before.graph.components, after.graph.components
    lines = [f"{name} ends" for name in old if name not in new]
    lines += [f"{name} is new: {_tasks(after, name)}" for name in new if name not in old]
    for name in [*(name for name in new if name in old), ACKER]:
        was, now = len(before.tasks_of(name)), len(after.tasks_of(name))
        if was != now:
            lines.append(f"{'acker shards' if name == ACKER else name}: {was} → {now} tasks")
    if len(before.workers) != len(after.workers):
        lines.append(f"workers: {len(before.workers)} → {len(after.workers)}")
    return lines


def _tasks(plan: Plan, name: str) -> str:
    count = len(plan.tasks_of(name))
    return f"{count} task{'s'[: count != 1]}"


def _problems(before: Plan, given: Plan) -> Iterator[str]:
    if before.graph.id != given.graph.id:
        yield f"the new code declares the topology {given.graph.id!r}"
        return
    if before.graph.config.tracked != given.graph.config.tracked:
        yield f"ackers=0 cannot begin or end while it runs; {_AGAIN}"
    if before.graph.config.worker_timeout_s != given.graph.config.worker_timeout_s:
        yield f"worker_timeout_s cannot change while leases of that length hold; {_AGAIN}"
    for name, old in before.graph.components.items():
        new = given.graph.components.get(name)
        if any(getattr(one.implementation, "of_batches", False) for one in (old, new) if one):
            yield (
                f"{name!r} belongs to an exactly-once program, which has to be drained as a whole; "
                f"{_AGAIN}"
            )
            return
        yield from _spout_problems(old, new) if old.level.is_spout else _bolt_problems(old, new)
        if new is not None and not old.level.is_spout and new.parallelism != old.parallelism:
            why = refusal(before, name, new.parallelism)
            yield from [f"{name!r} cannot have {new.parallelism} tasks: {why}"] if why else ()


def _spout_problems(old: Component, new: Component | None) -> Iterator[str]:
    if new is None:
        yield f"the position of the spout {old.id!r} would be left without it; {_AGAIN}"
    elif new.level is not old.level:
        yield f"the spout {old.id!r} has another kind of source, which has no position; {_AGAIN}"
    elif new.parallelism != old.parallelism:
        yield (
            f"the spout {old.id!r} has {old.parallelism} tasks with a position each, and would "
            f"have {new.parallelism}: keep their number"
        )
    elif not (can_move(old) and can_move(new)):
        yield (
            f"the position of the spout {old.id!r} is in memory: write snapshot() and "
            "restore(state) for it"
        )
    elif old.level is Level.NEXT_TUPLE and _emitted(old) != _emitted(new):
        yield (
            f"the spout {old.id!r} emits other records, and some that wait for their replay are of "
            f"the former kind; {_AGAIN}"
        )


def _bolt_problems(old: Component, new: Component | None) -> Iterator[str]:
    had, has = states_of(old), {} if new is None else states_of(new)
    for name, state in had.items():
        if name not in has:
            yield (
                f"the state {name!r} of {old.id!r} would be left without its component: keep the "
                f"component and the name of its state, or {_AGAIN}"
            )
        elif how := state.differences(has[name]):
            yield (
                f"the state {name!r} of {old.id!r} would have another {' and another '.join(how)}; "
                f"{_AGAIN}, and opened with a migration if there is one"
            )
    if had or old.level in (Level.FUNCTION, Level.ANSWERS) or _is_batch_function(old):
        if new is not None and _memories(old) != _memories(new):
            yield f"{old.id!r} has other operators beside its state in memory; {_AGAIN}"
    elif isinstance(old.implementation, OperatorBolt):
        return  # functions and combiners, which keep nothing
    elif new is None:
        yield f"what {old.id!r} keeps in memory would be left without it; {_AGAIN}"
    elif not (can_move(old) and can_move(new)):
        yield (
            f"what {old.id!r} keeps in memory would be lost: write snapshot() and restore(state) "
            "for it, in the running code too"
        )


def _is_batch_function(component: Component) -> bool:
    return hasattr(component.implementation, "__sunshower_batch__")


def _memories(component: Component) -> int:
    """The operators of a stage with a state in memory, which finds its place among them by number;
    0: nothing is in memory."""
    code = component.implementation
    is_kept = isinstance(code, OperatorBolt) and next(code.in_memory(), None) is not None
    return len(code.operators) if is_kept else 0


def _emitted(component: Component) -> Collection[object]:
    return [(one.id, one.schema.name, one.schema.fields) for one in component.streams.values()]
