"""Computes the plan of a rebalance: other numbers of tasks, and tasks that are placed anew.

Tasks keep their ids; sunshower/topologies/rescaling.py says which components can have another
number of them. Placements are as even as at submit, with few moves. Storm:
org.apache.storm.scheduler.EvenScheduler, which assigns all executors again and moves most of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sunshower.config import Between, with_value
from sunshower.errors import LifecycleError
from sunshower.runtime.plan import ACKER, Layout, Plan, Task, beside, make_plan
from sunshower.topologies.graph import can_move
from sunshower.topologies.rescaling import why_fixed

_TASKS_MAX = 4096  # of one component: a higher number is refused as a mistake


def placed(plan: Plan, places: Sequence[int]) -> Plan:
    """The plan with task i on worker `places[i]`."""
    tasks = zip(plan.tasks, places, strict=True)
    return plan.with_tasks([replace(task, worker=worker) for task, worker in tasks])


def with_present_numbers(given: Plan, tasks: Sequence[Task]) -> Plan:
    """A plan of new code, or of a resumed topology, whose numbers with `between` are as before, as
    far as its bounds allow. `tasks`: those before."""
    graph, counts = given.graph, Counter(task.component for task in tasks)
    numbers = {id: component.parallelism for id, component in graph.components.items()}
    present = {
        id: with_value(number, number.clamp(counts[id]))
        for id, number in numbers.items()
        if isinstance(number, Between) and counts[id]
    }
    workers = len({task.worker for task in tasks})
    declared = graph.config.workers
    if isinstance(declared, Between):
        workers = declared.clamp(workers)
    elif not present:
        return given
    else:
        workers = min(workers, declared)
    components = {
        id: replace(component, parallelism=present.get(id, component.parallelism))
        for id, component in graph.components.items()
    }
    graph = replace(graph, components=components)
    plan = replace(given, graph=graph, tasks=make_plan(graph, given.layout).tasks)
    if plan.layout is Layout.ISOLATE:
        return plan
    return placed(plan, replan(plan, workers))


def replan(plan: Plan, workers: int | None = None, layout: Layout | None = None) -> list[int]:
    """Places for all tasks on so many `workers`; by default as many as now.

    In the layout `isolate` every task has a worker of its own, however many that are. Raises
    LifecycleError if a worker would end whose tasks can neither stay nor move.
    """
    pinned = {t.id for t in plan.tasks if t.component != ACKER and not can_move(plan.component(t))}
    layout = layout or plan.layout
    if layout is Layout.ISOLATE:
        if workers not in (None, len(plan.tasks)):
            raise LifecycleError(
                f"in the layout isolate each of the {len(plan.tasks)} tasks has a worker of its "
                f"own, so there cannot be {workers} workers: leave out the number, or use the "
                "layout pack"
            )
        places = _isolated(plan, pinned)
    else:
        places = _packed(plan, workers or len(plan.workers), pinned)
    moved = [(t.component, t.index, to) for t, to in zip(plan.tasks, places, strict=True)]
    return [worker for _, _, worker in beside(plan.graph, moved)]


def _isolated(plan: Plan, pinned: set[int]) -> list[int]:
    places: dict[int, int] = {}
    for task in sorted(plan.tasks, key=lambda task: task.id not in pinned):
        if task.worker not in places.values():
            places[task.id] = task.worker
        elif task.id in pinned:
            raise _stuck(plan, [task], "they share a worker with another one of that kind")
    others = iter(unused(places.values(), len(plan.tasks)))
    return [places[t.id] if t.id in places else next(others) for t in plan.tasks]


def _packed(plan: Plan, count: int, pinned: set[int]) -> list[int]:
    held = Counter(task.worker for task in plan.tasks if task.id in pinned)
    by_need = sorted(plan.workers, key=lambda worker: (-held[worker], worker))
    lost = [task for task in plan.tasks if task.id in pinned and task.worker in by_need[count:]]
    if lost:
        raise _stuck(plan, lost, f"{len(held)} workers have such tasks")
    staying = by_need[:count]
    workers = sorted([*staying, *unused(staying, count - len(staying))])
    spread = _Spread(workers, pinned)
    spouts = {spout.id for spout in plan.graph.spouts}
    for component in plan.graph.components:
        spread.share_out(plan.tasks_of(component))
    spread.even_out()
    near = sorted({spread.places[task.id] for task in plan.tasks if task.component in spouts})
    ackers = _Spread(near, set())  # beside the spouts, as at submit
    ackers.share_out(plan.tasks_of(ACKER))
    places = spread.places | ackers.places
    return [places[task.id] for task in plan.tasks]


class _Spread:
    """Spreads tasks over workers: per component and in total, the counts differ by at most one.

    Pinned tasks stay where they are, which may make an even spread impossible.
    """

    def __init__(self, workers: Sequence[int], pinned: set[int]) -> None:
        self.places: dict[int, int] = {}
        self._workers = workers
        self._pinned = pinned
        self._tasks: list[Task] = []
        self._load = Counter(dict.fromkeys(workers, 0))
        self._own: dict[str, Counter[int]] = {}  # component → worker → how many of its tasks

    def share_out(self, tasks: Sequence[Task]) -> None:
        """Place the tasks of one component."""
        self._tasks += tasks
        homeless = [task for task in tasks if task.worker not in self._load]
        for task in tasks:
            if task not in homeless:
                self._put(task, task.worker)
        for task in homeless:
            self._put(task, self._emptiest(task.component))
        while moves := [move for task in tasks if (move := self._better(task))]:
            self._put(*moves[0])

    def even_out(self) -> None:
        """Move single tasks from full to empty workers, without making a component less even."""
        while move := self._next_even():
            self._put(*move)

    def _better(self, task: Task) -> tuple[Task, int] | None:
        """A move from the fullest worker that makes the task's component more even, or None."""
        loads, here = self._own[task.component], self.places[task.id]
        emptiest = self._emptiest(task.component)
        fullest = max(self._workers, key=lambda worker: (loads[worker], self._load[worker]))
        movable = task.id not in self._pinned and loads[here] == loads[fullest]
        return (task, emptiest) if movable and loads[here] - loads[emptiest] >= 2 else None

    def _next_even(self) -> tuple[Task, int] | None:
        by_load = sorted(self._workers, key=lambda worker: (self._load[worker], worker))
        for target in by_load:
            for here in reversed(by_load):
                if self._load[here] - self._load[target] < 2:
                    break
                for task in self._tasks:
                    loads = self._own[task.component]
                    if (
                        self.places[task.id] == here
                        and task.id not in self._pinned
                        and loads[here] > loads[target]
                    ):
                        return task, target
        return None

    def _emptiest(self, component: str) -> int:
        loads = self._own.setdefault(component, Counter())
        return min(self._workers, key=lambda worker: (loads[worker], self._load[worker], worker))

    def _put(self, task: Task, worker: int) -> None:
        loads = self._own.setdefault(task.component, Counter())
        if task.id in self.places:
            loads[self.places[task.id]] -= 1
            self._load[self.places[task.id]] -= 1
        self.places[task.id] = worker
        loads[worker] += 1
        self._load[worker] += 1


def unused(taken: Iterable[int], count: int) -> list[int]:
    """The lowest worker ids that are not taken."""
    taken = set(taken)
    return [worker for worker in range(len(taken) + count) if worker not in taken][:count]


def _stuck(plan: Plan, tasks: Sequence[Task], why: str) -> LifecycleError:
    names = ", ".join(f"{task.component}[{task.index}] on worker {task.worker}" for task in tasks)
    return LifecycleError(
        f"topology {plan.graph.id!r} cannot be rebalanced so: the state of {names} is in memory "
        f"and can neither stay nor move, for {why}. Write snapshot() and restore(state) for "
        f"{tasks[0].component!r}, or ask for more workers; nothing has been changed"
    )


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
        present = plan.tasks_of(name)
        wanted = changed.get(name, len(present))
        tasks += present[:wanted]
        for index in range(len(present), wanted):
            last_id += 1
            worker = plan.workers[index % len(plan.workers)]
            tasks.append(Task(last_id, name, index, worker))
    return plan.with_tasks(sorted(tasks, key=lambda task: task.id))


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
    return why_fixed(plan.graph, name, count)
