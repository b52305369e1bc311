"""From a plan to one worker's tasks: who is made, and which channels join them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from sunshower.runtime.acker_task import AckerTask
from sunshower.runtime.batch_bolt import BatchBoltTask
from sunshower.runtime.bolt_task import AutomaticBoltTask, BoltTask
from sunshower.runtime.channels import Channel, Inbox, LocalChannel, RemoteChannel
from sunshower.runtime.credits import FIRST_WINDOW, ServiceTime
from sunshower.runtime.ids import EdgeIds
from sunshower.runtime.luggage import Luggage
from sunshower.runtime.manual_bolt import ManualBoltTask
from sunshower.runtime.manual_spout import NextTupleSpoutTask
from sunshower.runtime.outlets import Outlet, Outlets, Route
from sunshower.runtime.pending import Pending
from sunshower.runtime.plan import ACKER, Plan, Stream, Task
from sunshower.runtime.reports import Reports, Shards
from sunshower.runtime.routing import make_router
from sunshower.runtime.spout_task import RecordsSpoutTask, SpoutTask
from sunshower.runtime.table_spout import TablesSpoutTask
from sunshower.runtime.usercode import guard
from sunshower.topologies.components import Context
from sunshower.topologies.graph import Level, Subscription

_SPOUTS: dict[Level, type[SpoutTask]] = {
    Level.RECORDS: RecordsSpoutTask,
    Level.TABLES: TablesSpoutTask,
    Level.NEXT_TUPLE: NextTupleSpoutTask,
}
_BOLTS: dict[Level, type[BoltTask]] = {
    Level.FUNCTION: AutomaticBoltTask,
    Level.PROCESS: AutomaticBoltTask,
    Level.EXECUTE: ManualBoltTask,
    Level.BATCH: BatchBoltTask,
}


@dataclass(slots=True)
class Wired:
    """Everything that lives in one worker."""

    reports: Reports
    spouts: dict[int, SpoutTask] = field(default_factory=dict)
    bolts: dict[int, BoltTask] = field(default_factory=dict)
    ackers: dict[int, AckerTask] = field(default_factory=dict)
    inboxes: dict[int, Inbox] = field(default_factory=dict)
    channels: dict[tuple[int, int], Channel] = field(default_factory=dict)


def wire(
    plan: Plan,
    worker: int,
    life: int,
    generator: np.random.Generator,
    ready: Callable[[int], dict[RemoteChannel, None]],
    luggage: Mapping[int, Luggage] | None = None,
) -> Wired:
    """Make the tasks of `worker` in its `life` (1, 2, …). `ready(peer)` is where a channel to
    another worker's task puts itself when it has something to send; `luggage` may hold the objects
    of tasks that have stayed."""
    tracked = plan.graph.config.tracked
    shards = [[acker.id for acker in ackers] for ackers in plan.shards]
    wired = Wired(Reports(Shards(shards) if tracked else None))
    for task in plan.tasks_on(worker):
        wired.inboxes[task.id] = Inbox()
    for task in plan.tasks_on(worker):
        if task.component == ACKER:
            wired.ackers[task.id] = AckerTask(task.id, [len(ackers) for ackers in shards])
            continue
        make = partial(_outlets, plan, task, wired, generator, ready)
        routed = guard(task, "prepare of a custom grouping", make)
        outlets = Outlets(task.id, routed, EdgeIds(generator))
        component = plan.component(task)
        own = luggage.get(task.id) if luggage else None
        instance = own.instance if own else None
        if instance is None:
            instance = guard(task, "the constructor", component.instance)
        config = plan.graph.config
        if component.level.is_spout:
            pending = Pending(plan.incarnation(task, life), config.spout_pending)
            wired.spouts[task.id] = _SPOUTS[component.level](
                task, instance, pending, outlets, wired.reports, config
            )
        else:
            wired.bolts[task.id] = _BOLTS[component.level](
                task,
                instance,
                outlets,
                wired.reports,
                ServiceTime(config),
                plan.streams,
            )
    return wired


def context(plan: Plan, task: Task) -> Context:
    """What a task is told about its place."""
    tasks = {id: [t.id for t in plan.tasks_of(id)] for id in plan.graph.components}
    return Context(
        plan.graph.id, task.component, task.id, task.index, plan.component(task).parallelism, tasks
    )


def _outlets(
    plan: Plan,
    task: Task,
    wired: Wired,
    generator: np.random.Generator,
    ready: Callable[[int], dict[RemoteChannel, None]],
) -> dict[str, Outlet]:
    def channel(target: Task) -> Channel:
        key = (task.id, target.id)
        if key not in wired.channels:
            credited = (task.component, target.component) not in plan.back_edges
            place = (task.id, target.id, FIRST_WINDOW, credited)
            wired.channels[key] = (
                LocalChannel(*place, inbox=wired.inboxes[target.id])
                if target.worker == task.worker
                else RemoteChannel(*place, ready=ready(target.worker))
            )
        return wired.channels[key]

    def route(stream: Stream, bolt: str, subscription: Subscription) -> Route:
        targets = plan.tasks_of(bolt)
        router = make_router(
            subscription.grouping,
            [t.id for t in targets],
            [t.id for t in targets if t.worker == task.worker],
            stream.spec.schema,
            generator,
        )
        return Route(router, [channel(target) for target in targets])

    found = {}
    for stream in (s for s in plan.streams if s.component == task.component):
        routes = [route(stream, bolt.id, sub) for bolt, sub in plan.subscriptions(stream)]
        found[stream.spec.id] = Outlet(stream.index, stream.spec, routes)
    return found
