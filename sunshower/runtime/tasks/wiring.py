"""Creates one worker's tasks and the channels between them, from a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from sunshower.runtime.events.event_log import EventWriter
from sunshower.runtime.events.health import Quarantine
from sunshower.runtime.events.instrument import Instrument
from sunshower.runtime.events.trace_recorder import TraceRecorder
from sunshower.runtime.plan import ACKER, Plan, PlannedStream, Task
from sunshower.runtime.tasks.bolts.automatic_bolt import AutomaticBoltTask, BatchBoltTask
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.tasks.bolts.keyed_bolt import KeyedBolt
from sunshower.runtime.tasks.bolts.manual_bolt import ManualBoltTask
from sunshower.runtime.tasks.bolts.operator_bolt import OperatorBoltTask
from sunshower.runtime.tasks.flight_recorder import Recorder
from sunshower.runtime.tasks.spouts.log_source import LogSource
from sunshower.runtime.tasks.spouts.next_tuple_source import NextTupleSource
from sunshower.runtime.tasks.spouts.records_source import RecordsSource, TablesSource
from sunshower.runtime.tasks.spouts.request_source import AnswerTask, RequestSource
from sunshower.runtime.tasks.spouts.retry_queue import RetryQueue
from sunshower.runtime.tasks.spouts.source import SpoutSource
from sunshower.runtime.tasks.spouts.spout_task import SpoutTask
from sunshower.runtime.tasks.supervision import Supervision
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.ids import EdgeIds
from sunshower.runtime.tracking.ledger import AckerTask
from sunshower.runtime.tracking.pending import Pending
from sunshower.runtime.tracking.reports import FailedTrees, Reports, Shards
from sunshower.runtime.transport.channels import (
    Channel,
    Inbox,
    LocalChannel,
    RemoteChannel,
    ServiceTime,
)
from sunshower.runtime.transport.output_streams import OutputStream, OutputStreams, Route
from sunshower.runtime.transport.peer_link import PeerLink
from sunshower.runtime.transport.routing import EvenRouter, make_router
from sunshower.topologies.graph import Component, Level, Subscription, own_copy
from sunshower.topologies.retry import Retry

_SOURCES: dict[Level, Callable[[SpoutTask], SpoutSource]] = {
    Level.RECORDS: RecordsSource,
    Level.TABLES: TablesSource,
    Level.LOG: LogSource,
    Level.NEXT_TUPLE: NextTupleSource,
    Level.REQUESTS: RequestSource,
}
_BOLTS: dict[Level, type[BoltTask]] = {
    Level.FUNCTION: AutomaticBoltTask,
    Level.PROCESS: AutomaticBoltTask,
    Level.EXECUTE: ManualBoltTask,
    Level.BATCH: BatchBoltTask,
    Level.OPERATORS: OperatorBoltTask,
    Level.ANSWERS: AnswerTask,
}


@dataclass(slots=True)
class Wired:
    """The tasks, inboxes and channels of one worker.

    What it holds at most, for records of r bytes, also with bolts that never ack:

        each spout task     spout_pending × (r + 52 bytes)                      Pending, replays
        each acker task     slots of its spouts, up to the next power of two, × 16 bytes: Ledger
                            (24 with progress deadlines), and 10,000 early failures
        each channel in     (window_records_max + a batch) × (r + 16 bytes)     Inbox
        each channel out    the same, while they wait for a packet, and 8 bytes for each record
                            sent and not processed; at most 64 MiB in transit to one task

    A window is usually far below its maximum: a quarter of a second of its receiver's work. What a
    bolt keeps itself (also tuples to ack later) is not included: spout_pending bounds the trees,
    and a tree has as many records as its bolts emit.
    """

    reports: Reports
    failed_trees: FailedTrees
    spouts: dict[int, SpoutTask] = field(default_factory=dict)
    bolts: dict[int, BoltTask] = field(default_factory=dict)
    ackers: dict[int, AckerTask] = field(default_factory=dict)
    inboxes: dict[int, Inbox] = field(default_factory=dict)
    channels: dict[tuple[int, int], Channel] = field(default_factory=dict)
    overload: list[tuple[int, Batch]] = field(default_factory=list)  # target, refused batch
    letter_readers: set[int] = field(default_factory=set)  # bolt tasks that read dead letters

    def refuse(self, target: int, batch: Batch) -> None:
        """Keep a batch beyond a cycle's limit; the worker fails it after its slice of work."""
        self.overload.append((target, batch))


def wire(
    plan: Plan,
    worker: int,
    life: int,
    generator: np.random.Generator,
    peer_links: Mapping[int, PeerLink],
    *,
    recorder: Recorder | None = None,
    first_try_s: float = 0.0,
    quarantined: Mapping[int, Quarantine] | None = None,
    event_writer: EventWriter | None = None,
    trace_recorder: TraceRecorder | None = None,
) -> Wired:
    """Create the tasks of `worker` in its `life` (1, 2, …); user code is created when they open.

    `peer_links`: to the other workers.
    `first_try_s`: when tasks may be opened; `quarantined`: those that wait longer, and why;
    `event_writer`, `trace_recorder`: what records the tasks' events.
    """
    recorder, gone = recorder or Recorder(), quarantined or {}
    wired = Wired(_reports(plan, worker, peer_links), FailedTrees(len(plan.spouts)))
    wired.inboxes |= {task.id: Inbox() for task in plan.tasks_on(worker)}
    for task in plan.tasks_on(worker):
        if task.component == ACKER:
            wired.ackers[task.id] = _acker(plan, task, trace_recorder)
            continue
        routed = _output_streams(plan, task, wired, generator, peer_links)
        instrument = Instrument(task.id, event_writer, trace_recorder)
        output_streams = OutputStreams(task.id, routed, EdgeIds(generator), instrument)
        component = plan.component(task)
        config = plan.graph.config_of(component)
        why, wait_s = gone.get(task.id, (None, 0.0))
        place = (task, config, first_try_s + wait_s, why)
        supervision = Supervision(*place, plan.graph.unavailable, generator.random)
        if component.level.is_spout:
            slots = (plan.incarnation(task, life), config.spout_slots)
            pending = Pending(*slots, recorder.tables(task.id, *slots))
            retry = component.retry or Retry(attempts=config.attempts_max)
            retries = RetryQueue(retry, generator, config.unavailable_max_s)
            make_task = partial(SpoutTask, supervision, instrument, component.instance)
            spout = wired.spouts[task.id] = make_task(
                _SOURCES[component.level], pending, output_streams, wired.reports, config, retries
            )
            _declare(spout, component, plan)
        else:
            if component.reads_dead_letters:
                wired.letter_readers.add(task.id)
            make = component.instance
            if component.store is not None:
                make = partial(KeyedBolt.of, component)
            make_bolt = partial(_BOLTS[component.level], supervision, instrument, make)
            place_in = (output_streams, wired.reports, ServiceTime(config), plan.streams)
            wired.bolts[task.id] = make_bolt(*place_in)
    _join_answers(plan, wired)
    return wired


def _acker(plan: Plan, task: Task, recorder: TraceRecorder | None) -> AckerTask:
    strides = [len(ackers) for ackers in plan.shards]
    on_traced = None if recorder is None else recorder.reported
    return AckerTask(task.id, strides, timed=_has_progress_deadlines(plan), on_traced=on_traced)


def _reports(plan: Plan, worker: int, peer_links: Mapping[int, PeerLink]) -> Reports:
    if not plan.graph.config.tracked:
        return Reports(None)
    links = {
        acker.id: peer_links[acker.worker]
        for ackers in plan.shards
        for acker in ackers
        if acker.worker != worker
    }
    return Reports(Shards([[acker.id for acker in ackers] for ackers in plan.shards]), links)


def _declare(spout: SpoutTask, component: Component, plan: Plan) -> None:
    """Tell a spout task what is declared downstream of it."""
    if component.windows:
        spout.watermarks.watch(component)
    spout.limit.may_be_held = plan.graph.may_hold(component.id)
    spout.wait_for(component.awaits, ())
    spout.source.notes_first_end = component.id in plan.graph.awaited


def _join_answers(plan: Plan, wired: Wired) -> None:
    """Lead the rows of answers to their requests, in the same worker."""
    sources = {spout.task.component: spout.source for spout in wired.spouts.values()}
    for bolt in wired.bolts.values():
        if isinstance(bolt, AnswerTask):
            requests = sources[str(plan.component(bolt.task).beside)]
            assert isinstance(requests, RequestSource)
            bolt.requests = requests
            requests.is_combined |= plan.graph.combines_rows(str(plan.component(bolt.task).beside))


def _output_streams(
    plan: Plan,
    task: Task,
    wired: Wired,
    generator: np.random.Generator,
    peer_links: Mapping[int, PeerLink],
) -> dict[str, OutputStream]:
    records_max = plan.graph.config.window_records_max

    def channel(target: Task) -> Channel:
        key = (task.id, target.id)
        if key not in wired.channels:
            credited = (task.component, target.component) not in plan.back_edges
            refuse = None if credited else wired.refuse
            kind = (
                partial(LocalChannel, inbox=wired.inboxes[target.id])
                if target.worker == task.worker
                else partial(RemoteChannel, ready=peer_links[target.worker].ready)
            )
            wired.channels[key] = kind(
                task.id, target.id, credited=credited, records_max=records_max, refuse=refuse
            )
        return wired.channels[key]

    def route(stream: PlannedStream, bolt: str, subscription: Subscription) -> Route:
        targets = plan.tasks_of(bolt)
        router = make_router(
            own_copy(subscription.grouping, f"the grouping from {stream.component!r} to {bolt!r}"),
            [t.id for t in targets],
            [t.id for t in targets if t.worker == task.worker],
            stream.spec.schema,
            generator,
        )
        channels = [channel(target) for target in targets]
        if isinstance(router, EvenRouter):
            router.has_room = lambda target: not channels[target].full
            router.piece = lambda target: channels[target].piece
        return Route(router, channels)

    streams = {}
    for stream in (s for s in plan.streams if s.component == task.component):
        routes = [route(stream, bolt.id, sub) for bolt, sub in plan.subscriptions(stream)]
        streams[stream.spec.id] = OutputStream(stream.index, stream.spec, routes, stream.classes)
    return streams


def _has_progress_deadlines(plan: Plan) -> bool:
    """Whether spouts ask ackers for the ages of trees."""
    watermarks = any(spout.windows for spout in plan.graph.spouts)
    return watermarks or plan.graph.config.message_timeout_max_s is not None
