"""Runs one worker: its tasks, its links to peers, and the order of its work.

Events arrive as method calls (a packet, an answer, the lives of peers); `step` does a slice of work
and `outgoing` returns the packets to send. Nothing here depends on Ray: an adapter calls these in a
loop, and a simulator or a test may call them in any order. `Worker` is the last class; before it
are the refill of lost tables and the injected faults.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from sunshower.clock import Clock
from sunshower.errors import TopologyFailed, Unserialisable
from sunshower.failures import Cause
from sunshower.runtime.control.events import DesiredState, Welcome
from sunshower.runtime.control.overview import Reached, apply
from sunshower.runtime.events.event_log import EventWriter, What
from sunshower.runtime.events.health import Quarantine, TaskError, WaitKind
from sunshower.runtime.events.injected_faults import (
    ANY,
    WELL,
    Fate,
    InjectedFaults,
    Link,
    fate,
    faults_of,
    slowness,
)
from sunshower.runtime.events.metrics import TaskStats, WorkerStats
from sunshower.runtime.events.trace_recorder import TraceRecorder
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask
from sunshower.runtime.tasks.flight_recorder import CrashReport, Recorder
from sunshower.runtime.tasks.report_router import LossDetector, ReportRouter
from sunshower.runtime.tasks.spouts.records_source import RecordsSource
from sunshower.runtime.tasks.spouts.source import EmitReservation, ReservationStore
from sunshower.runtime.tasks.spouts.spout_task import SpoutTask
from sunshower.runtime.tasks.supervision import Supervised
from sunshower.runtime.tasks.task_scheduler import TaskOpening, TaskScheduler
from sunshower.runtime.tasks.task_transfer import Packer, SaveTransfer, TaskTransfer, pack_all
from sunshower.runtime.tasks.user_code import Raised, UserCodeCalls
from sunshower.runtime.tasks.wiring import Wired, wire
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.transport.channels import Inflows, RemoteChannel
from sunshower.runtime.transport.packets import Answer, Grant, PacketReader
from sunshower.runtime.transport.peer_link import NOTHING, PacketReceiver, PeerLink, silent_peers
from sunshower.topologies.components import Bolt, Context
from sunshower.topologies.graph import Component, Graph, Level, upstream

_LOOK_S = 1.0  # how often a worker reports how long its tasks have been waiting


# ---- table refill --------------------------------------------------------------------------------
# Fills a task of a table in memory again after the death of its process, from the table's sources.
#
#     open, empty ──the master says how far its sources were──▶ reads them ──all is there──▶ runs
#
# A worker of its own, within the worker of the task, runs what is upstream of the table: its
# spouts, and the operators and bolts between them and the table. It sends nothing to other
# workers, so nothing else gets these records a second time, and it ends when it has read what the
# spouts had drawn after the death: each change that the former process had acked is part of that.
# All others are emitted again. Until then the task takes no input, as in an outage.

_SAY_S = 1.0  # how often it says how far it is
_AGAIN_S = 30.0  # after which it begins again if a source or a bolt cannot be opened
_SLICES = 8  # of its worker, for one of the worker of the task


class _Filler(Bolt[Any, None]):
    """Changes the table of one task by the records that reach this task."""

    def __init__(self, table: Any, index: int) -> None:
        """`table`: the OperatorBolt of the task, which is open; all copies have the same."""
        self._table, self._index = table, index

    def __deepcopy__(self, memo: Any) -> _Filler:
        return copy(self)

    def prepare(self, context: Context) -> None:
        self._is_own = context.index == self._index

    def process(self, record: Any) -> None:
        if self._is_own:
            for _ in self._table.expand(record):
                pass

    def flush(self) -> None:
        if self._is_own:
            self._table.flush()


class TableRefill:
    """Fills one task of a table again."""

    def __init__(self, plan: Plan, bolt: BoltTask, make_worker: Callable[[Plan], Worker]) -> None:
        """`make_worker`: of a plan with one worker."""
        self.bolt, self._plan, self._make_worker = bolt, plan, make_worker
        self.sources = plan.component(bolt.task).refills
        self.drawn: Reached = {}  # how far all tasks of the sources were after the death; empty:
        # this is not known yet
        self._worker: Worker | None = None  # None until it is
        self._say_s = self._again_s = -inf

    @property
    def awaits(self) -> tuple[str, ...]:
        """The spouts of which it must know how far they are."""
        return self.sources if self._worker is None else ()

    def step(self, now: float) -> float:
        """Read a part. Returns when to call it again, in seconds; ∞: when something has changed.
        Raises TopologyFailed if a record uses up its attempts."""
        if now >= self._say_s:
            self._say_s = now + _SAY_S
            self.bolt.supervision.hold(WaitKind.FILLING, self._progress(), now)
        if not self.drawn or now < self._again_s:
            return max(self._again_s - now, 0.0) or inf
        worker = self._worker = self._worker or self._begin()
        for _ in range(_SLICES):
            wait_s = worker.step()
            worker.end_waits()
            if any(supervision.is_quarantined for supervision in worker.supervisions):
                return self.begin_again(now)
            if worker.has_read_first:
                self.close()
                self.bolt.supervision.end_wait()
                self.bolt.supervision.tried()
                return inf
            if wait_s != 0:
                return _SAY_S if wait_s is None else min(wait_s, _SAY_S)
        return 0.0

    def _begin(self) -> Worker:
        plan = make_plan(_graph_of(self._plan, self.bolt), Layout.PACK)
        ids = {(task.component, task.index): task.id for task in plan.spouts}
        ends = {
            ids[task.component, task.index]: self.drawn[task.id]
            for task in self._plan.tasks
            if task.component in self.sources and self._plan.component(task).level.counts_records
        }
        worker = self._make_worker(plan)
        worker.read_from_start(ends)
        return worker

    def begin_again(self, now: float, error: str = "") -> float:
        """Begin again later, because a source or a bolt raises again and again, the last time this
        `error`. Returns in how many seconds."""
        self.bolt.supervision.hold(WaitKind.FILLING, self._progress(error), now)
        self.close()
        self._again_s = self._say_s = now + _AGAIN_S
        return _AGAIN_S

    @property
    def is_done(self) -> bool:
        """Whether the task runs again."""
        return self.bolt.supervision.wait is not WaitKind.FILLING

    def close(self) -> None:
        """End the reading."""
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    def _progress(self, error: str = "") -> TaskError:
        task, names = self.bolt.task, " and ".join(map(repr, self.sources))
        text = f"it waits until it is known how far spout {names} is"
        if self._worker is not None:
            stats = self._worker.stats()
            read = sum(
                task_stats.counts.acked
                for task_stats in stats.tasks
                if task_stats.component in self.sources
            )
            text = f"{read:,} records of spout {names} are processed"
            error = error or next(
                (t.health.last[-1].line for t in stats.tasks if t.health.last), ""
            )
        text += f"; the last error: {error}" if error else ""
        return TaskError(task.component, task.index, task.worker, text)


def _graph_of(plan: Plan, bolt: BoltTask) -> Graph:
    """What is upstream of a table's changes, and, in the place of the table, what changes this
    task."""
    graph, table = plan.graph, plan.component(bolt.task)
    reads = table.inputs[:1]
    ids = upstream(graph.components, reads)
    components = {id: _again(graph.components[id], ids) for id in ids}
    filler = _Filler(bolt.bolt, bolt.task.index)
    components[table.id] = Component(
        table.id, Level.PROCESS, filler, table.parallelism, inputs=reads
    )
    config = replace(graph.config, workers=1, ackers=1, trace_share=0.0)
    return replace(graph, components=components, config=config)


def _again(component: Component, ids: Sequence[str]) -> Component:
    """A component for a second reading, beside those with these ids. Raises TopologyFailed for a
    spout that cannot be read again."""
    awaits = tuple(id for id in component.awaits if id in ids)
    component = replace(component, awaits=awaits, windows=0, event_times={})
    if component.level is not Level.LOG:
        return component
    spout = component.instance().from_start()
    if spout is None:
        raise TopologyFailed(
            f"spout {component.id!r}, {type(component.implementation).__name__}, cannot be read "
            "again from its start, to fill a table in memory whose process has died: give that "
            "table a state="
        )
    return replace(component, implementation=spout)


# ---- worker faults -------------------------------------------------------------------------------


class WorkerFaults:
    """The injected faults that one worker knows; `generator` draws the chances."""

    def __init__(
        self,
        plan: Plan,
        worker: int,
        wired: Wired,
        clock: Clock,
        generator: np.random.Generator,
    ) -> None:
        self._plan = plan
        self._worker = worker
        self._wired = wired
        self._clock = clock
        self._generator = generator
        self._injected = InjectedFaults()
        self._expirations = 0  # the highest number so far
        self._links: dict[int, tuple[Link, ...]] = {}  # peer → faulty links to it

    def begin(self, injected: InjectedFaults) -> None:
        """Set the faults at the start of a life; past expirations do not apply to it."""
        self._expirations = max(self._expirations, injected.expirations)
        self.desired_state(injected)

    def desired_state(self, injected: InjectedFaults) -> bool:
        """Replace the injected faults. Returns whether all pending trees must time out."""
        if injected == self._injected:
            return False
        self._injected, self._links = injected, {}
        tasks: list[Supervised] = [*self._wired.spouts.values(), *self._wired.bolts.values()]
        for task in tasks:
            place = (task.task, self._clock, self._generator)
            task.instrument.faults = faults_of(injected, *place)
        here = {task.id: task for task in self._plan.tasks_on(self._worker)}
        for acker in self._wired.ackers.values():
            acker.slow_s = slowness(injected, here[acker.task])
        known, self._expirations = self._expirations, max(self._expirations, injected.expirations)
        return self._expirations > known

    def fate(self, peer: int) -> Fate:
        """Draw what happens to a packet sent to `peer` now."""
        if not self._injected.links:
            return WELL
        if peer not in self._links:
            self._links[peer] = self._links_to(peer)
        links = self._links[peer]
        return fate(links, self._generator) if links else WELL

    def _links_to(self, peer: int) -> tuple[Link, ...]:
        here, of_peer = (
            {t.component for t in self._plan.tasks_on(w)} for w in (self._worker, peer)
        )
        return tuple(
            link
            for link in self._injected.links
            if (link.source == ANY or link.source in here)
            and (link.target == ANY or link.target in of_peer)
        )


# ---- worker --------------------------------------------------------------------------------------


class Worker:
    """The tasks of one worker in one of its lives."""

    def __init__(
        self,
        plan: Plan,
        worker: int,
        life: int,
        generator: np.random.Generator,
        clock: Clock,
        packet_receiver: PacketReceiver | None = None,
        recorder: Recorder | None = None,
        *,
        delay_s: float = 0.0,
        quarantined: Mapping[int, Quarantine] | None = None,
        transfer: Mapping[int, TaskTransfer] | None = None,
        event_writer: EventWriter | None = None,
        trace_recorder: TraceRecorder | None = None,
        reservations: ReservationStore | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """`delay_s`: before the tasks open; ackers do not wait. `quarantined`: tasks whose code
        does not run at first, and why. `transfer`: of tasks that stay. `wake`: see Equipment."""
        self.plan, self.worker, self.life = plan, worker, life
        self.packet_receiver = packet_receiver or PacketReceiver(worker, life)
        self._clock, self._config = clock, plan.graph.config
        self._peer_links = {
            peer: PeerLink(worker, life, peer, self._config, plan.streams, self._refuse)
            for peer in plan.workers
            if peer != worker
        }
        recorder = recorder or Recorder()
        self._call = UserCodeCalls(recorder, clock)
        self._wired = wire(
            plan,
            worker,
            life,
            generator,
            self._peer_links,
            recorder=recorder,
            first_try_s=clock.now() + delay_s,
            quarantined=quarantined,
            event_writer=event_writer,
            trace_recorder=trace_recorder,
        )
        self._crash_lives: dict[int, int] = {}  # worker → life of its last crash report
        self._router = ReportRouter(plan, self._wired, self._peer_links, self._call, clock)
        self._loss_detector, self._inflows = LossDetector(plan, self._wired), Inflows()
        self._spouts = list(self._wired.spouts.values())
        self._equip_spouts(reservations, recorder)
        self._tasks: list[BoltTask | SpoutTask] = [*self._wired.bolts.values(), *self._spouts]
        self.supervisions = [task.supervision for task in self._tasks]
        self._opening = TaskOpening(plan, self._call, clock, self._tasks, transfer or {})
        self._refills = self._lost_tables(generator)
        equipment = (self._wired, self._config, self._call, clock, self._opening, self._peer_links)
        self._scheduler = TaskScheduler(*equipment, self._router, wake)
        self._faults = WorkerFaults(plan, worker, self._wired, clock, generator)
        self._reader = PacketReader(plan, worker)
        self._closed, self._input_s = False, 0.9 * _longest_timeout_s(plan)
        self._packed: dict[int, TaskTransfer] | None = None  # if set, this life has ended
        if event_writer is not None:
            spouts = np.array([spout.task.id for spout in self._spouts], np.int64)
            event_writer.note(What.STARTED, values=spouts, detail=(worker, life))

    # ---- facts ----------------------------------------------------------------------------

    def welcome(self, welcome: Welcome, crash_report: CrashReport | None = None) -> None:
        """Apply the master's answer to the hello of this life; before the first step. Raises
        TopologyFailed for a message that has crashed its spout's process too often."""
        for bolt_task in self._wired.bolts.values():
            bolt_task.rare = bolt_task.rare._replace(input_s=self._input_s)
        for spout in self._spouts:
            committed, drawn = welcome.positions.get(spout.task.id, (0, 0))
            spout.source.begin_at(committed, drawn, welcome.owed.get(spout.task.id))
            times = welcome.suspects.get(spout.task.id)
            if times and crash_report and crash_report.task:
                spout.accuse(times, crash_report.failure(self.plan))
        if crash_report and (bolt := self._wired.bolts.get(crash_report.task or -1)):
            self._scheduler.watch(bolt, self._config.message_timeout_s)
        self.peers(welcome.lives)
        for link in self._peer_links.values():  # the master's announcement of this life may be lost
            link.content.greets = self.life > 1
        self._faults.begin(welcome.desired_state.injected)
        self.desired_state(welcome.desired_state)

    def _lost_tables(self, generator: np.random.Generator) -> list[TableRefill]:
        """What fills the tables of tasks again that were in the memory of a dead process."""
        make_worker = partial(Worker, worker=0, life=1, generator=generator, clock=self._clock)
        refills, transfers = list[TableRefill](), self._opening.transfer_left
        for id, bolt in self._wired.bolts.items():
            transfer = transfers.get(id)
            # without a state: it was lost before its task moved
            moved = transfer is not None and (
                transfer.instance is not None or transfer.state is not None
            )
            first = transfer is None and self.life == 1
            if self.plan.component(bolt.task).refills and not moved and not first:
                refills.append(TableRefill(self.plan, bolt, make_worker))
        return refills

    def read_from_start(self, ends: Reached) -> None:
        """Let spouts read what their sources have had so far, and no more; before the first step.
        `ends`: how far those are that count their records."""
        for supervision in self.supervisions:
            supervision.proven = True  # the code has processed these records before
        for spout in self._spouts:
            reached = ends.get(spout.task.id)
            spout.source.notes_first_end = reached is None
            if reached is not None:
                spout.tells = False  # the spout in the other worker is told of these records
                spout.source.begin_at(0, *reached)
                spout.drain()

    @property
    def has_read_first(self) -> bool:
        """Whether all that was to be read after `read_from_start` is processed."""
        return all(spout.done or spout.has_filled() for spout in self._spouts)

    def peers(self, lives: Mapping[int, int], reports: Iterable[CrashReport] = ()) -> None:
        """Apply the lives of workers that have said hello, and their crash reports."""
        if self._packed is not None:
            return
        now = self._clock.now()
        for report in reports:
            if report.life > self._crash_lives.get(report.worker, 0) and report.fits(self.plan):
                self._crash_lives[report.worker] = report.life
                self._loss_detector.suspect(report, now)
        for peer, life in lives.items():
            peer_link = self._peer_links.get(peer)
            if peer_link is None or life <= (peer_link.peer_life or 0):
                continue
            self._loss_detector.spouts_began(peer, life)
            is_new = peer_link.peer_life is None
            lost = peer_link.peer_is(life)
            if not is_new:
                self._loss_detector.lost(lost, peer, Cause.ACTOR_DIED, now)
                self._loss_detector.peer_died(peer)
                self._inflows.forget(peer)
                self._router.dispatch()
                self._loss_detector.sweep(peer, now)

    def receive(self, data: bytes) -> None:
        """Process a packet that the PacketReceiver has accepted."""
        if self._packed is not None:
            return  # its contents were given up, and are emitted again in the next life
        if (packet := self._reader.read(data, self._call)) is None:
            return
        link = self._peer_links[packet.sender]
        if packet.life != link.peer_life:
            self.peers({packet.sender: packet.life})  # may overtake the master's announcement
            if packet.life != link.peer_life:
                return  # from a previous life; the sweep handles its contents
        if packet.grants:
            self._hear_grants(packet.grants)
        for task, report in packet.reports.items():
            self._router.report(task, report)
        for task, verdicts in packet.verdicts.items():
            self._router.verdicts(task, verdicts)
        if len(packet.failed):
            self._wired.failed_trees.note(packet.failed)
        if len(packet.postponed):
            self._router.postpone(packet.postponed)
        for frame in packet.frames:
            inflow = self._inflows.of(frame.batch.source, frame.target, packet.sender)
            if frame.error is None:
                inflow.arrived = frame.seq
                self._wired.inboxes[frame.target].put(frame.batch, inflow, frame.seq)
            else:
                self._loss_detector.cannot_be_rebuilt(frame)
                inflow.put_aside(frame.seq)

    def answered(self, peer: int, seq: int, answer: Answer | None) -> None:
        """Apply the peer's answer to a packet; None if the call failed."""
        if self._packed is not None:
            return
        now = self._clock.now()
        lost = self._peer_links[peer].answered(seq, answer, now)
        if lost is not NOTHING:
            cause = Cause.BAD_FRAME if answer is Answer.REFUSED else Cause.ACTOR_DIED
            self._loss_detector.lost(lost, peer, cause, now)

    def look_at_links(self) -> None:
        """Give up packets whose answer is overdue. Called when all answers so far were read."""
        now = self._clock.now()
        for peer, peer_link in self._peer_links.items():
            for seq in peer_link.overdue(now):
                self.answered(peer, seq, None)

    def stopped_for(self, seconds: float) -> None:
        """The whole process was stopped for so long, and has not read what arrived meanwhile."""
        for spout in self._spouts:
            spout.deadlines.stopped_for(seconds, self._clock.now())
        for peer_link in self._peer_links.values():
            peer_link.stopped_for(seconds)

    def desired_state(self, desired_state: DesiredState) -> None:
        """Apply the desired state: of the spouts, and the injected faults."""
        self._opening.hold_ticks(desired_state.is_opening)
        now = self._clock.now()
        apply(desired_state.conditions, self.plan, self._spouts, self.supervisions, now)
        if place := desired_state.conditions.drawn.get((self.worker, self.life)):
            for refill in self._refills:
                refill.drawn = place
        if self._faults.desired_state(desired_state.injected):
            for spout in self._spouts:
                self._call(spout.task, "fail", partial(spout.expire, now))
        if desired_state.active is not self._opening.active:
            self._opening.active = desired_state.active
            for spout in self._spouts:
                change = spout.activate if desired_state.active else spout.settle
                self._call(spout.task, "activate or deactivate", change)
        if desired_state.draining:
            self.drain()

    def drain(self) -> None:
        """Emit no new records; finish what is pending."""
        for spout in self._spouts:
            spout.drain()

    def pack(self, leaving: Container[int], save: SaveTransfer = None) -> dict[int, TaskTransfer]:
        """End this life for a rebalance: see pack_all. A second call returns the same."""
        if self._packed is None:
            tasks: list[Packer] = [spout for spout in self._spouts if spout.spout is not None]
            tasks += [bolt for bolt in self._wired.bolts.values() if bolt.bolt is not None]
            unfilled = {refill.bolt.task.id for refill in self._refills}
            tasks = [task for task in tasks if task.task.id not in unfilled]
            left = {**self._opening.transfer_left, **{id: TaskTransfer() for id in unfilled}}
            packed = pack_all(tasks, left, leaving, self._clock.now(), self._call, save)
            self._packed = packed
            self._end_refills()
        return self._packed

    # ---- work -----------------------------------------------------------------------------

    def step(self) -> float | None:
        """Do a slice of work. Returns 0 if there may be more to do, else the seconds until the next
        due time, or None if there is none."""
        if self._packed is not None:
            return None
        now = self._clock.now()
        if self._opening.waiting:
            self._opening.look(now)
        for spout in self._spouts:
            if spout.next_look_s <= now:
                self._call(spout.task, "looking", partial(spout.look, now))
        if self._opening.tickers:
            self._scheduler.tick(now)
        refill_s = inf
        if self._refills:
            refill_s = min(map(partial(self._refill, now), [*self._refills]))
        worked = self._scheduler.run_one(now)
        if self._wired.overload:
            self._loss_detector.overloaded()
        reports = self._wired.reports
        if reports.failed or reports.waiting:
            self._router.dispatch()
        for inflow in self._inflows.to_grant(now):
            self._peer_links[inflow.worker].content.grants.append(inflow.grant())
        if not refill_s or (worked and (self._spouts or self._has_inputs)):
            return 0
        wait_s = self._until_next(now)
        return wait_s if refill_s == inf else min(refill_s, inf if wait_s is None else wait_s)

    @property
    def has_slack(self) -> bool:
        """Whether a source had less, in the last step, than it may emit: what there is to send had
        better leave at once."""
        return self._scheduler.has_slack

    def open_tasks(self) -> bool:
        """Open the tasks that are due, as `step` does. Returns whether any was opened."""
        is_due = self._packed is None and bool(self._opening.waiting)
        return is_due and self._opening.look(self._clock.now())

    def _refill(self, now: float, refill: TableRefill) -> float:
        """Go on to fill a table again, once its task is open. Returns when to call it again."""
        bolt = refill.bolt
        if bolt.bolt is None or not (bolt.supervision.runs or bolt.supervision.wait):
            return inf
        try:
            wait_s: float = self._call(bolt.task, "the filling", partial(refill.step, now))
        except Raised as raised:
            wait_s = refill.begin_again(now, raised.error.line)
        if refill.is_done:
            self._refills.remove(refill)
        return wait_s

    def _end_refills(self) -> None:
        """Close what fills tables again, and these tables."""
        for refill in self._refills:
            refill.close()
            if refill.bolt.bolt is not None:
                refill.bolt.close()

    def outgoing(self) -> list[tuple[int, int, bytes]]:
        """Return (peer, seq, bytes) of each packet to send now; pass the answers to `answered`."""
        packets: list[tuple[int, int, bytes]] = []
        if self._packed is not None:
            return packets
        now = self._clock.now()
        for peer, peer_link in self._peer_links.items():
            if peer_link.wants_packet:
                packets += [(peer, seq, data) for seq, data in peer_link.next_packets(now)]
        reports = self._wired.reports
        if reports.failed or reports.waiting:  # records that could not be encoded have failed
            self._router.dispatch()
        return packets

    def fate(self, peer: int) -> Fate:
        """Draw the injected faults of a packet that is sent to `peer` now; call once for each."""
        return self._faults.fate(peer)

    def end_waits(self) -> None:
        """Let spouts begin whose tables are filled, if all tasks are in this worker; otherwise the
        master does it."""
        if not any(spout.awaits for spout in self._spouts):
            return
        names = {spout.task.component for spout in self._spouts}
        unfilled = {s.task.component for s in self._spouts if not (s.done or s.has_filled())}
        for spout in self._spouts:
            spout.wait_for(spout.awaits, names - unfilled)

    @property
    def idle(self) -> bool:
        """Whether nothing waits in an inbox or for sending."""
        links = self._peer_links.values()
        return not self._has_inputs and all(peer_link.idle for peer_link in links)

    @property
    def _has_inputs(self) -> bool:
        waiting = any(inbox.entries for inbox in self._wired.inboxes.values())
        return waiting or any(bolt.is_busy for bolt in self._wired.bolts.values())

    @property
    def finished(self) -> bool:
        """Whether every spout here is done, and the worker is idle."""
        return self.idle and all(spout.done for spout in self._spouts)

    def stats(self) -> WorkerStats:
        """Return the worker's statistics at this moment."""
        for supervision in self.supervisions:
            supervision.now_s = self._clock.now()
        spouts = [spout.stats() for spout in self._spouts]
        bolts = [self._queue(bolt.stats(), bolt) for bolt in self._wired.bolts.values()]
        untracked = [self._loss_detector.untracked, *(task.untracked for task in self._tasks)]
        return WorkerStats(
            self.worker,
            self.life,
            (*spouts, *bolts),
            self.idle,
            self._loss_detector.count,
            next(filter(None, untracked), None),
            at_rest=not any(spout.active for spout in self._spouts),
            links=silent_peers(self._peer_links, self._clock.now(), self._config),
            crash_reports=self._call.crash_reports,
            lives=self._lives,
        )

    def pulse(self) -> tuple[object, ...]:
        """A tenth as costly as `stats`; changes with it, but for latencies, positions, figures; and
        every second while a task waits, because `stats` say how long."""
        at_rest = not any(spout.active for spout in self._spouts)
        now, waits = (
            self._clock.now(),
            any(supervision.wait is not None for supervision in self.supervisions),
        )
        waits = waits or bool(silent_peers(self._peer_links, now, self._config))
        look = int(now / _LOOK_S) if waits else None
        lives = tuple(self._lives.values())
        return (self.idle, at_rest, look, lives, *[task.pulse() for task in self._tasks])

    @property
    def _lives(self) -> Mapping[int, int]:
        """The workers that it knows, with their lives, if tables may have to be filled again."""
        if not self.plan.graph.refilled:
            return {}
        links = self._peer_links.items()
        known = {peer: life for peer, link in links if (life := link.peer_life)}
        return {**known, self.worker: self.life}

    def objects(self, component: str) -> dict[int, Any]:
        """The user's object of each of the component's tasks here, None where it is not open."""
        objects = {spout.task: spout.spout for spout in self._spouts}
        objects |= {bolt.task: bolt.bolt for bolt in self._wired.bolts.values()}
        objects |= {refill.bolt.task: None for refill in self._refills}
        return {
            task.id: user_object
            for task, user_object in objects.items()
            if task.component == component
        }

    def open_spouts(self, id: str) -> list[SpoutTask]:
        """The tasks of a spout here that are open."""
        return [spout for spout in self._spouts if spout.task.component == id and spout.is_open]

    def results(self, component: str) -> list[Any]:
        """Return `result()` of each of the component's tasks in this worker."""
        objects = self.objects(component).values()
        return [
            user_object.result() if hasattr(user_object, "result") else None
            for user_object in objects
        ]

    def check_invariants(self) -> None:
        """Raise AssertionError if a table here is corrupt, or more is pending than is allowed."""
        for acker in self._wired.ackers.values():
            acker.ledger.check_invariants()
        for spout in self._spouts:
            spout.pending.check_invariants()
            held = len(spout.pending) + len(spout.replays.line) - spout.watermarks.is_under_way
            assert held <= self._config.spout_slots, f"{spout.task.component}: {held} are open"

    def notices(self) -> list[str]:
        """Return log lines about failures since the last call; all that are left once closed."""
        now, notices = inf if self._closed else self._clock.now(), self._reader.notices()
        return [
            line for spout in self._spouts for line in spout.replays.notices.take(now)
        ] + notices

    def close(self) -> list[TaskError]:
        """Close every open task, because the topology stops. Returns the errors raised."""
        self._closed = True
        for refill in self._refills:
            refill.close()
        left = {
            id for id, transfer in (self._packed or {}).items() if transfer.instance is None
        }  # elsewhere
        tasks = (*self._spouts, *self._wired.bolts.values())
        errors = (task.close() for task in tasks if task.task.id not in left)
        return [error for error in errors if error is not None]

    # ---- how ------------------------------------------------------------------------------

    def _equip_spouts(self, reservations: ReservationStore | None, recorder: Recorder) -> None:
        for spout in self._spouts:
            if isinstance(source := spout.source, RecordsSource):
                source.recorder = recorder
                if reservations is not None:
                    source.reservation = EmitReservation(spout.task.id, reservations, self._clock)

    def _queue(self, stats: TaskStats, bolt: BoltTask) -> TaskStats:
        """Add the bolt task's queue to its statistics."""
        queued = len(self._wired.inboxes[bolt.task.id])
        awaits = next((refill.awaits for refill in self._refills if refill.bolt is bolt), ())
        queue_s = queued * (bolt.service.pace_s or 0.0)
        return replace(stats, queued=queued, queue_s=queue_s, awaits=awaits)

    def _until_next(self, now: float) -> float | None:
        soonest = min(self._inflows.grant_at_s, self._scheduler.next_probe_s())
        if any(supervision.wait is not None for supervision in self.supervisions):
            soonest = min(soonest, now + _LOOK_S)
        for spout in self._spouts:
            soonest = min(soonest, spout.next_look_s)
            if self._scheduler.may_emit(spout):
                soonest = min(soonest, spout.next_emit_s)
        soonest = min([soonest, *(link.next_look_s for link in self._peer_links.values())])
        soonest = min([soonest, *(ticker.look_s(now) for ticker in self._opening.tickers)])
        soonest = min([soonest, *(task.supervision.retry_s for task in self._opening.waiting)])
        return None if soonest == inf else max(soonest - now, 0.0005)

    def _hear_grants(self, grants: list[Grant]) -> None:
        for source, target, seq, credit in grants:
            channel = self._wired.channels.get((source, target))
            if isinstance(channel, RemoteChannel):
                channel.granted(seq, credit)

    def _refuse(self, channel: RemoteChannel, bad: Batch, error: Unserialisable) -> None:
        self._loss_detector.cannot_travel(channel, bad, error)  # set after the peer links


def _longest_timeout_s(plan: Plan) -> float:
    """How long a tree of any spout may stay open."""
    config = plan.graph.config
    timeouts_s = [spout.message_timeout_s or 0.0 for spout in plan.graph.spouts]
    return max(config.message_timeout_max_s or config.message_timeout_s, *timeouts_s)
