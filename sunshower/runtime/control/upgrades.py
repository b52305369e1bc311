"""Makes the plan of an upgrade, or refuses it: new code for tasks that keep their ids and states.

A stored state must fit the new code: state_shapes.py says what is compared. What tasks keep in
memory does not go into new code, so components that keep something there are refused: some before
anything stops, the others when `snapshot` returns something (task_transfer.py). All workers are
new: no process has code of both versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sunshower.errors import LifecycleError
from sunshower.runtime.control.placement import can_move, unused
from sunshower.runtime.control.plan_changes import BATCHES, kept_in_memory, refusal
from sunshower.runtime.plan import ACKER, Plan, numbered
from sunshower.topologies.graph import Component, Level
from sunshower.topologies.logs import LogSpout
from sunshower.topologies.operators.state_shapes import states_of

OPEN_S = 60.0  # how long new code may take to open, unless the caller says otherwise
_AGAIN = "kill the topology and submit it: what is in stores stays there"
_EMPTY = "if it keeps nothing, write a snapshot() that returns None and a restore(state)"


def upgraded(before: Plan, given: Plan, taken: Iterable[int], last_id: int = 0) -> Plan:
    """The plan of `given` code that follows `before`. `taken`: workers that may have a process;
    new tasks have ids above `last_id`.

    Raises LifecycleError with everything that does not fit.
    """
    if problems := list(_problems(before, given)):
        raise LifecycleError(
            f"topology {before.graph.id!r} cannot be upgraded: {'; '.join(problems)}. "
            "Nothing has been changed"
        )
    numbers = unused({*before.workers, *taken}, len(given.workers))
    worker_of = dict(zip(given.workers, numbers, strict=True))
    placed = [replace(task, worker=worker_of[task.worker]) for task in given.tasks]
    graph = replace(given.graph, components=continued(before, given))
    return replace(given, graph=graph, tasks=numbered(placed, before.tasks, last_id))


def continued(before: Plan, given: Plan) -> dict[str, Component]:
    """The components of `given` code, whose spouts continue at the positions of those `before`."""
    former = before.graph.components
    return {
        name: _continued(former[name], one) if name in former else one
        for name, one in given.graph.components.items()
    }


def _continued(old: Component, new: Component) -> Component:
    """The new component; a spout continues at the positions of the former one."""
    code, former = new.implementation, old.implementation
    if isinstance(code, LogSpout) and isinstance(former, LogSpout):
        return replace(new, implementation=code.continue_from(former))
    return new


def changes(before: Plan, after: Plan) -> list[str]:
    """What an upgrade changes, a line each, for users."""
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
        yield f"worker_timeout_s cannot change while it runs; {_AGAIN}"
    for code in (before, given):
        for name, one in code.graph.components.items():
            if hasattr(one.implementation, BATCHES):
                yield (
                    f"{name!r} belongs to an exactly-once program, which has to be drained as a "
                    f"whole; {_AGAIN}"
                )
                return
    for name, old in before.graph.components.items():
        new = given.graph.components.get(name)
        yield from _spout_problems(old, new) if old.level.is_spout else _bolt_problems(old, new)
        if old.level.is_spout or kept_in_memory(old) or (new is None and states_of(old)):
            continue
        count = 0 if new is None else new.parallelism
        if count != old.parallelism and (why := refusal(before, name, max(1, count))):
            yield f"{name!r} cannot have {count} tasks: {why}"


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
    elif old.level is Level.LOG and _class_of(old) != _class_of(new):
        yield (
            f"the spout {old.id!r} is a {_class_of(new)} instead of a {_class_of(old)}, and need "
            f"not find its position; {_AGAIN}"
        )
    elif old.level is Level.NEXT_TUPLE and not can_move(old):
        yield (
            f"the spout {old.id!r} may keep its position in memory, which does not go into new "
            f"code: {_EMPTY}, in the running code, too; or {_AGAIN}"
        )


def _class_of(component: Component) -> str:
    """By name: code by value has another class in each version."""
    code = component.implementation
    return (code if isinstance(code, type) else type(code)).__qualname__


def _bolt_problems(old: Component, new: Component | None) -> Iterator[str]:
    if kept := kept_in_memory(old):
        yield (
            f"{kept}, which does not go into new code: give it a state= "
            f"in a store; {_EMPTY}, in the running code, too; or {_AGAIN}"
        )
        return
    has = {} if new is None else states_of(new)
    for name, state in states_of(old).items():
        if name not in has:
            yield (
                f"the state {name!r} of {old.id!r} would be left without its component: keep the "
                f"component and the name of its state, or {_AGAIN}"
            )
        elif how := state.differences(has[name]):
            yield (
                f"the state {name!r} of {old.id!r} would differ in its {' and '.join(how)}; "
                f"{_AGAIN}, and migrate= converts it"
            )
