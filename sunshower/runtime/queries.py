"""Queries of a running component's keyed state: the tasks to ask, and their answers.

A query goes to the task that the records with this key go to. It is answered between two slices of
work, from what the last batch has committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sunshower.errors import BadEmit, ClusterError, UnknownComponent, Unserialisable
from sunshower.records import key_of
from sunshower.runtime.plan import Plan, Task
from sunshower.runtime.tasks.bolts.keyed_bolt import KeyedBolt
from sunshower.runtime.transport.hashing import stable_hash
from sunshower.topologies.graph import Component
from sunshower.topologies.groupings import All, Fields
from sunshower.topologies.operators.compiled_stage import OperatorBolt
from sunshower.topologies.operators.grouping import GLOBAL
from sunshower.topologies.operators.port import Keyed


@dataclass(frozen=True)
class Query:
    """A question to one task: for the value of a key, or for up to `limit` keys and values."""

    component: str
    task: int
    keys: tuple[Any, ...] | None = None
    limit: int = 0


Ask: TypeAlias = Callable[[int, Query], list[tuple[Any, Any]]]  # of (worker, the question)


def value(plan: Plan, component: str, key: Any, ask: Ask) -> Any:
    """The value of a key; None if there is none."""
    tasks = _asked(plan, component)
    try:
        task = tasks[stable_hash(key_of(key)) % len(tasks)]
    except (TypeError, BadEmit) as error:
        raise ClusterError(f"{key!r:.200} cannot be a key of {component!r}: {error}") from error
    found = ask(task.worker, Query(component, task.id, (key,)))
    return found[0][1]


def entries(plan: Plan, component: str, limit: int, ask: Ask) -> list[tuple[Any, Any]]:
    """Up to `limit` keys and their values."""
    found: list[tuple[Any, Any]] = []
    for task in _asked(plan, component):
        if len(found) < limit:
            found += ask(task.worker, Query(component, task.id, limit=limit - len(found)))
    return found


def answer(query: Query, plan: Plan, objects: Mapping[int, Any]) -> list[tuple[Any, Any]]:
    """What a worker answers; `objects`: the component's objects there, by task."""
    declared = plan.graph.components.get(query.component)
    if declared is None or not _has_keys(declared):
        names = [id for id, one in plan.graph.components.items() if _has_keys(one)]
        what = "is no such component" if declared is None else "has no keyed state"
        raise UnknownComponent(
            f"topology {plan.graph.id!r}: {query.component!r} {what}; those with a keyed state "
            f"are: {', '.join(names) or 'none'}"
        )
    if (bolt := _keyed(objects.get(query.task))) is None:
        raise ClusterError(
            f"the task of {query.component!r} that has this state does not run at the moment: it "
            f"starts, or moves. `sunshower status {plan.graph.id}` shows it; ask again"
        )
    width = len(bolt.by)
    if query.keys is None:
        if _is_broadcast(declared) and query.task != plan.tasks_of(query.component)[0].id:
            return []  # the first task has them all
        some = zip(range(query.limit), bolt.stored_items(), strict=False)
        return [(() if width == 0 else key, found) for _, (key, found) in some]
    for key in query.keys:
        wrong = type(key) is tuple and len(key) == 1  # the tuple of a key, not the key
        if wrong if width == 1 else not isinstance(key, tuple | list) or len(key) != width:
            raise ClusterError(
                f"the key of {query.component!r} has {width} value{'s' * (width != 1)} "
                f"({', '.join(bolt.by) or 'all records are one group'}), and it is not {key!r:.200}"
            )
    keys = [key_of(key) if width else GLOBAL for key in query.keys]
    try:
        return list(zip(query.keys, bolt.stored(keys), strict=True))
    except Unserialisable as error:
        raise ClusterError(f"no such key can be in {query.component!r}: {error}") from error


def _asked(plan: Plan, component: str) -> list[Task]:
    """The tasks of a component; if there is none, one whose worker says so."""
    return plan.tasks_of(component) or [plan.tasks[0]]


def _is_broadcast(component: Component) -> bool:
    """Whether each task has the states of all keys."""
    groupings = [read.grouping for read in component.inputs]
    has_all = any(isinstance(one, All) for one in groupings)
    return has_all and not any(isinstance(one, Fields) for one in groupings)


def _has_keys(component: Component) -> bool:
    return component.store is not None or _keyed(component.implementation) is not None


def _keyed(found: Any) -> Keyed | None:
    if isinstance(found, OperatorBolt):
        return found.keyed
    return found if isinstance(found, KeyedBolt) else None
