"""Says what a new plan changes, and makes the plan of an upgrade, or refuses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sunshower.config import Between
from sunshower.errors import LifecycleError
from sunshower.runtime.control.placement import placed, refusal, replan, unused
from sunshower.runtime.plan import ACKER, Layout, Plan, Task, make_plan, numbered
from sunshower.topologies.graph import Component, Graph, Level, can_move
from sunshower.topologies.logs import LogSpout
from sunshower.topologies.operators.state_shapes import states_of
from sunshower.topologies.rescaling import direct_senders, kept_in_memory

AS_THEY_ARE: Mapping[str, int] = {}


def leaving(before: Plan, after: Plan) -> list[Task]:
    """The tasks whose user's object ends when `after` replaces `before`: those that go to another
    worker, or end, and those of components that are opened for another number of tasks."""
    places = {task.id: task.worker for task in after.tasks}
    changed = {task.component for task in ends_anew(before, after)}
    changed |= {name for receiver in changed for name in direct_senders(before.graph, receiver)}
    return [
        task
        for task in before.tasks
        if task.component in changed or places.get(task.id) != task.worker
    ]


def ends_anew(before: Plan, after: Plan) -> list[Task]:
    """The tasks of components with another number of tasks, whose objects take nothing along; those
    of exactly-once programs all together, as each of them knows the tasks of the others."""
    numbers, components = after.graph.components, before.graph.components
    changed = {
        name for name, component in components.items()
        if name not in numbers or numbers[name].parallelism != component.parallelism
    }  # fmt: skip
    if any(components[name].is_of_batches for name in changed):
        changed |= {name for name, component in components.items() if component.is_of_batches}
    return [task for task in before.tasks if task.component in changed]


# ---- upgrades ------------------------------------------------------------------------------------
# Makes the plan of an upgrade, or refuses it: new code for tasks that keep their ids and states.
#
# A stored state must fit the new code: state_shapes.py says what is compared. What tasks keep in
# memory does not go into new code, so components that keep something there are refused: some
# before anything stops, the others when `snapshot` returns something (task_transfer.py). All
# workers are new: no process has code of both versions.

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


def as_changed(before: Plan, declared: Graph, given: Plan) -> tuple[Plan, list[str]]:
    """The plan of `given` code with what a rebalance has changed `before`: numbers of tasks, acker
    shards and workers, and a worker for each task. What a command gives, or the file says otherwise
    than the one that `declared` the present plan, wins. Returns also what is kept, a line each, for
    users."""
    task_counts = {name: len(before.tasks_of(name)) for name in [*before.graph.components, ACKER]}
    unmoved, now = make_plan(_with_numbers(declared, task_counts)), len(before.workers)
    is_changed = len(unmoved.workers) != now
    layout = Layout.ISOLATE if before.layout is Layout.ISOLATE and is_changed else Layout.PACK
    counts, lines = _counts(before, declared, given, layout)
    graph = _with_numbers(given.graph, counts)
    wanted = replace(given, layout=layout).with_tasks(make_plan(graph, layout).tasks)
    workers, number = given.graph.config.workers, None
    if layout is Layout.ISOLATE:
        return wanted, lines
    if isinstance(workers, Between):
        number = workers.clamp(now)
    elif _says_the_same("workers", declared, given.graph):
        if is_changed:
            number = now
        elif "workers" in declared.given:
            number = declared.config.workers
    if number is None:
        return wanted, lines
    config = replace(graph.config, workers=number)
    then = given.with_tasks(make_plan(replace(graph, config=config)).tasks)
    if len(then.workers) < (workers_max := min(number, now)):  # a rebalance spreads them further
        then = placed(then, replan(then, workers_max, Layout.PACK))
    if not isinstance(workers, Between) and len(then.workers) != len(wanted.workers):
        lines.append(f"workers: the {len(then.workers)} that it has are kept")
    return then, lines


def _counts(
    before: Plan, declared: Graph, given: Plan, layout: Layout
) -> tuple[dict[str, int], list[str]]:
    """How many tasks of each component, and acker shards, the `given` code gets; and what of it is
    kept, a line each."""
    former_plan, given_plan = make_plan(declared, layout), make_plan(given.graph, layout)
    counts, lines = dict[str, int](), list[str]()
    for name in [*given.graph.components, ACKER]:
        was, now, new = (len(plan.tasks_of(name)) for plan in (former_plan, before, given_plan))
        bounds, former = (_declared(graph, name) for graph in (given.graph, declared))
        counts[name] = bounds.clamp(now) if isinstance(bounds, Between) and now else new
        if isinstance(bounds, Between) or not now or not was:
            continue
        is_set = name == ACKER and "ackers" in declared.given
        if name == ACKER:
            is_same = _says_the_same("ackers", declared, given.graph)
        else:
            is_same = was == new and not isinstance(former, Between)
        if not is_same or (was == now and not is_set) or now == new:
            continue
        what, tasks = "acker shards" if name == ACKER else name, _tasks(before, name)
        by = "that a rebalance has made" if was != now else "of --set"
        if why := refusal(given, name, now):
            lines.append(f"{what}: cannot keep the {tasks} {by}: {why}")
        else:
            counts[name] = now
            lines.append(f"{what}: keeps the {tasks} {by}")
    return counts, lines


def _with_numbers(graph: Graph, counts: Mapping[str, int]) -> Graph:
    """The graph with so many tasks of each component, and acker shards."""
    components = {
        name: replace(component, parallelism=counts[name])
        for name, component in graph.components.items()
    }
    config = replace(graph.config, ackers=counts[ACKER])
    return replace(graph, components=components, config=config)


def _says_the_same(setting: str, before: Graph, graph: Graph) -> bool:
    """Whether no command gives this setting now, and the program says of it what it said."""
    return setting not in graph.given and _is_same(
        graph.declared(setting), before.declared(setting)
    )


def _is_same(value: Any, other: Any) -> bool:
    """Whether both are equal; those of `between` also in their bounds."""
    bounds = [
        (bound.least, bound.most) if isinstance(bound, Between) else None
        for bound in (value, other)
    ]
    return bool(value == other) and bounds[0] == bounds[1]


def _declared(graph: Graph, name: str) -> int:
    """The number of tasks that a graph declares for a component; 0: it has none of that name."""
    return graph.components[name].parallelism if name in graph.components else 0


def with_given(before: Plan, graph: Graph) -> tuple[Graph, list[str]]:
    """The graph with the settings that a command has given to the plan `before`, if neither a
    command nor the program says otherwise now; and what is kept, a line each, for users. Numbers of
    workers and ackers are kept as in `as_changed`, except one instead of a `between`."""
    by_hand = {
        name: declared
        for name, declared in before.graph.given.items()
        if name not in graph.given
        and (name not in ("workers", "ackers") or isinstance(declared, Between))
        and _is_same(getattr(graph.config, name), declared)
    }
    if not by_hand:
        return graph, []
    values = {name: getattr(before.graph.config, name) for name in by_hand}
    if "workers" in by_hand and before.layout is Layout.PACK:
        values["workers"] = len(before.workers)  # also if a rebalance has changed them since
    config = replace(graph.config, **values)
    lines = [f"{name} keeps its value of --set: {value}" for name, value in values.items()]
    return replace(graph, config=config, given={**graph.given, **by_hand}), lines


def continued(before: Plan, given: Plan) -> dict[str, Component]:
    """The components of `given` code, whose spouts continue at the positions of those `before`."""
    former = before.graph.components
    return {
        name: _continued(former[name], component) if name in former else component
        for name, component in given.graph.components.items()
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


def preview(before: Plan, after: Plan) -> list[str]:
    """What an upgrade would change, and what it would keep, a line each, for users."""
    old, new = before.graph.components, after.graph.components
    lines = changes(before, after)
    if both := [name for name in new if name in old]:
        lines.append(f"continue with the new code: {', '.join(both)}")
    for name in [*new, *(name for name in old if name not in new)]:
        had = states_of(old[name]) if name in old else {}
        has = states_of(new[name]) if name in new else {}
        was, now = (_tasks(plan, name) for plan in (before, after))
        lines += [
            f"state {state!r} of {name} is dropped: it stays in its store, and nobody reads it"
            for state in had
            if state not in has
        ]
        for state, shape in has.items():
            if state not in had:
                how = "is new: it begins with what its store has under this name"
            elif was != now:
                how = f"is kept, and moves from {was} to {now} when these open it"
            else:
                how = "is kept"
            lines.append(f"state {state!r} of {name} {how}")
            for change in had[state].migrations(shape) if state in had else ():
                lines.append(f"state {state!r} of {name} is migrated when it is read: {change}")
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
    elif old.is_of_batches != new.is_of_batches:
        yield f"{old.id!r} would no longer coordinate batches; {_AGAIN}"
    elif old.is_of_batches:
        for why in old.implementation.differences(new.implementation):
            yield f"{why}; {_AGAIN}"
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
    if in_memory := kept_in_memory(old):
        yield (
            f"{in_memory}, which does not go into new code: give it a state= "
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
            problem = f"the state {name!r} of {old.id!r} would differ in its {' and '.join(how)}"
            if old.is_of_batches or {*how} & {"store", "key", "operator"}:
                yield f"{problem}; set that back; or give the state another name, and {_AGAIN}"
            else:
                yield f"{problem}; {_AGAIN}, and migrate= converts it"
