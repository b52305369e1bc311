"""One worker: its tasks, its lanes to the others, and the order in which things are done.

Facts come in as method calls (a packet, an answer, news of the peers); `step` does a slice of work
and `outgoing` says which packets to send. Nothing here knows Ray: a shell calls in a loop, and a
simulator or a test may do so in any order.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from sunshower.clock import Clock
from sunshower.errors import Unserialisable
from sunshower.failures import Cause
from sunshower.runtime.acker_task import Verdicts
from sunshower.runtime.batch import Batch, join
from sunshower.runtime.channels import Inflow, RemoteChannel
from sunshower.runtime.credits import FIRST_WINDOW
from sunshower.runtime.ids import U64, incarnations_of
from sunshower.runtime.lanes import Inlet, Lane
from sunshower.runtime.losses import Losses
from sunshower.runtime.luggage import Luggage, Packer, pack_all
from sunshower.runtime.metrics import WorkerStats
from sunshower.runtime.packets import Answer, Packet, read_content
from sunshower.runtime.plan import Plan
from sunshower.runtime.reports import ShardReport
from sunshower.runtime.spout_task import SpoutTask
from sunshower.runtime.usercode import guard
from sunshower.runtime.wiring import context, wire

_GRANT_S = 0.05  # what was processed is granted after this long, however little it is
_BOLTS_BEFORE_SPOUT = 8  # slices of bolts in a row before a spout gets one


class Worker:
    """The tasks of one worker in one life of it."""

    def __init__(
        self,
        plan: Plan,
        worker: int,
        life: int,
        generator: np.random.Generator,
        clock: Clock,
        inlet: Inlet | None = None,
        luggage: Mapping[int, Luggage] | None = None,
    ) -> None:
        self.plan = plan
        self.worker = worker
        self.life = life
        self.inlet = inlet or Inlet(worker, life)
        self._clock = clock
        self._config = plan.graph.config
        self._place = {task.id: task for task in plan.tasks}
        self._lanes = {
            peer: Lane(worker, life, peer, self._config, plan.streams, self._refuse)
            for peer in plan.workers
            if peer != worker
        }
        self._luggage = luggage or {}
        self._wired = wire(
            plan, worker, life, generator, lambda peer: self._lanes[peer].ready, luggage
        )
        self._losses = Losses(plan, self._wired)
        self._inflows: dict[tuple[int, int], Inflow] = {}
        self._bolts = list(reversed(self._wired.bolts.values()))  # downstream first
        self._spouts = list(self._wired.spouts.values())
        self._opened = False
        self._active = True
        self._packed: dict[int, Luggage] | None = None  # then nothing happens here any more
        self._bolt_turns = 0
        self._grant_at_s: float | None = None

    # ---- facts ----------------------------------------------------------------------------

    def peers(self, lives: Mapping[int, int]) -> None:
        """The workers that have said hello, and in which life each is."""
        if self._packed is not None:
            return
        now = self._clock.now()
        for peer, life in lives.items():
            lane = self._lanes.get(peer)
            if lane is None or life <= (lane.peer_incarnation or 0):
                continue
            is_new = lane.peer_incarnation is None
            lost = lane.peer_is(life)
            if not is_new:
                self._losses.lost(lost, Cause.ACTOR_DIED)
                self._peer_died(peer, now)

    def receive(self, data: bytes) -> None:
        """A packet that the inlet has accepted."""
        if self._packed is not None:
            return  # what is in it was given up, and is emitted again in the next life
        packet = read_content(data, self.plan.streams)
        self.peers({packet.sender: packet.life})  # it may overtake the master's news of a new life
        if packet.life != self._lanes[packet.sender].peer_incarnation:
            return  # from a life that is over; the sweep takes care of what was in it
        self._hear_grants(packet)
        for task, report in packet.reports.items():
            self._hear_report(task, report)
        for task, verdicts in packet.verdicts.items():
            self._hear_verdicts(task, verdicts)
        if len(packet.postponed):
            self._postpone(packet.postponed)
        for frame in packet.frames:
            key = (frame.batch.source, frame.target)
            if key not in self._inflows:
                self._inflows[key] = Inflow(*key, packet.sender, FIRST_WINDOW)
            if frame.error is None:
                self._wired.inboxes[frame.target].put(frame.batch, self._inflows[key], frame.seq)
            else:
                self._losses.cannot_be_rebuilt(frame)
                self._inflows[key].processed(1, frame.seq, FIRST_WINDOW)

    def answered(self, peer: int, seq: int, answer: Answer | None) -> None:
        """What the peer said to a packet; None when the call itself failed."""
        if self._packed is not None:
            return
        lost = self._lanes[peer].answered(seq, answer, self._clock.now())
        cause = Cause.BAD_FRAME if answer is not None else Cause.ACTOR_DIED
        self._losses.lost(lost, cause)

    def activate(self, active: bool) -> None:
        """Let the spouts emit, or let them rest; everything else goes on."""
        if active is self._active:
            return
        self._active = active
        for spout in self._spouts:
            if not self._opened:
                spout.active = active
            elif active:
                guard(spout.task, "activate", spout.activate)
            else:
                guard(spout.task, "deactivate", spout.deactivate)

    def drain(self) -> None:
        """Emit nothing fresh; finish what is open."""
        for spout in self._spouts:
            spout.drain()

    def pack(self, leaving: Container[int]) -> dict[int, Luggage]:
        """The end of this life, for a rebalance; `leaving` tasks are closed. See luggage.py.

        A second call packs nothing anew; tasks that were never opened have nothing to pack.
        """
        if self._packed is None:
            tasks: list[Packer] = [*self._spouts, *self._wired.bolts.values()]
            self._packed = pack_all(tasks, leaving) if self._opened else {}
        return self._packed

    # ---- work -----------------------------------------------------------------------------

    def step(self) -> float | None:
        """Do a slice of work. Returns 0 if there is more to do, the seconds to wait for the next
        thing that is due, or None if nothing is."""
        if self._packed is not None:
            return None
        if not self._opened:
            self._open()
        now = self._clock.now()
        for spout in self._spouts:
            if spout.next_look_s <= now:
                guard(spout.task, "fail", partial(spout.look, now))
        worked = self._run_one(now)
        self._dispatch_reports()
        self._give_grants(now)
        return 0 if worked else self._until_next(now)

    def outgoing(self) -> Iterator[tuple[int, int, bytes]]:
        """(peer, seq, bytes) of each packet to be sent now; `answered` wants the answers."""
        if self._packed is not None:
            return
        now = self._clock.now()
        for peer, lane in self._lanes.items():
            while (packet := lane.next_packet(now)) is not None:
                yield (peer, *packet)
        self._dispatch_reports()  # of records that could not travel

    @property
    def idle(self) -> bool:
        """Nothing waits in an inbox and nothing is on its way out."""
        return all(not inbox.entries for inbox in self._wired.inboxes.values()) and all(
            lane.idle for lane in self._lanes.values()
        )

    @property
    def finished(self) -> bool:
        """Every spout here is done, and the worker is idle."""
        return self.idle and all(spout.done for spout in self._spouts)

    def stats(self) -> WorkerStats:
        """The worker at this moment."""
        spouts = [spout.stats() for spout in self._spouts]
        bolts = [bolt.stats() for bolt in self._wired.bolts.values()]
        untracked = [self._losses.untracked, *(bolt.untracked for bolt in self._bolts)]
        return WorkerStats(
            self.worker,
            self.life,
            (*spouts, *bolts),
            self.idle,
            self._losses.count,
            next(filter(None, untracked), None),
            at_rest=not any(spout.active for spout in self._spouts),
        )

    def results(self, component: str) -> list[Any]:
        """What `result()` of each of the component's tasks in this worker says."""
        spouts = [t.spout for t in self._spouts if t.task.component == component]
        bolts = [t.bolt for t in self._wired.bolts.values() if t.task.component == component]
        return [one.result() if hasattr(one, "result") else None for one in (*spouts, *bolts)]

    def close(self) -> None:
        """The topology stops: every task is told, whatever the others say to it."""
        if self._opened:
            left = {id for id, own in (self._packed or {}).items() if own.instance is None}
            tasks: list[Packer] = [*self._spouts, *self._wired.bolts.values()]
            for task in tasks:
                if task.task.id not in left:  # which are closed, and open elsewhere
                    guard(task.task, "close or cleanup", task.close)

    # ---- how ------------------------------------------------------------------------------

    def _open(self) -> None:
        self._opened = True
        for bolt in self._wired.bolts.values():
            where = context(self.plan, bolt.task)
            own = self._luggage.get(bolt.task.id)
            begin = partial(bolt.unpack, own) if own else bolt.prepare
            guard(bolt.task, "prepare", partial(begin, where))
        for spout in self._spouts:
            where = context(self.plan, spout.task)
            own = self._luggage.get(spout.task.id)
            begin = partial(spout.unpack, own) if own else spout.open
            guard(spout.task, "open", partial(begin, where))
            if self._active:
                guard(spout.task, "activate", spout.activate)

    def _run_one(self, now: float) -> bool:
        if self._bolt_turns < _BOLTS_BEFORE_SPOUT and self._run_bolt():
            self._bolt_turns += 1
            return True
        self._bolt_turns = 0
        return self._run_spouts(now) or self._run_bolt()

    def _run_bolt(self) -> bool:
        """The bolt furthest downstream that has something to do and room for what comes of it."""
        for bolt in self._bolts:
            inbox = self._wired.inboxes[bolt.task.id]
            if not inbox.entries or bolt.outlets.full:
                continue
            limit = bolt.service.slice_records
            entries = inbox.take_several(limit) if bolt.joins else [inbox.take(limit)]
            batch = join([entry[0] for entry in entries])
            before = self._clock.now()
            guard(bolt.task, "the code or a grouping", partial(bolt.process, batch))
            bolt.service.measure(len(batch), self._clock.now() - before)
            for part, origin, seq in entries:
                origin.processed(len(part), seq, bolt.service.window)
            self._pass_on_postponed(bolt)
            return True
        return False

    def _run_spouts(self, now: float) -> bool:
        turns = [self._run_spout(spout, now) for spout in self._spouts if self._may_emit(spout)]
        return any(turns)

    def _may_emit(self, spout: SpoutTask) -> bool:
        """Whether there is room for what the spout might emit, and everybody to send it to."""
        room = spout.pending.room or not self._wired.reports.tracked
        wired = all(lane.peer_incarnation is not None for lane in self._lanes.values())
        may = spout.active and not spout.done and not spout.outlets.full
        return bool(room and wired and may)

    def _run_spout(self, spout: SpoutTask, now: float) -> bool:
        if spout.resting_until_s > now:
            return False
        limit = min(spout.service.slice_records, spout.outlets.window)
        emitted: int = guard(
            spout.task, "records, tables or next_tuple", partial(spout.emit, now, limit)
        )
        if emitted:
            spout.service.measure(emitted, self._clock.now() - now)
            spout.wake()
        else:
            spout.rest(now)
        return emitted > 0

    def _until_next(self, now: float) -> float | None:
        times = [spout.next_look_s for spout in self._spouts]
        times += [lane.retry_s for lane in self._lanes.values() if lane.retry_s is not None]
        times += [at for at in (self._grant_at_s,) if at is not None]
        times += [spout.resting_until_s for spout in self._spouts if self._may_emit(spout)]
        soonest = min(times, default=np.inf)
        return None if soonest == np.inf else max(soonest - now, 0.0005)

    def _dispatch_reports(self) -> None:
        for task, report in self._wired.reports.take().items():
            if task in self._wired.ackers:
                self._hear_report(task, report)
            else:
                waiting = self._lane_to(task).content.reports.setdefault(task, ShardReport())
                waiting.starts += report.starts
                waiting.acks += report.acks
                waiting.fails += report.fails

    def _hear_report(self, task: int, report: ShardReport) -> None:
        for spout, verdicts in self._wired.ackers[task].hear(report).items():
            owner = self.plan.spouts[spout].id
            if owner in self._wired.spouts:
                self._hear_verdicts(owner, verdicts)
            else:
                waiting = self._lane_to(owner).content.verdicts.setdefault(owner, Verdicts())
                waiting.complete += verdicts.complete
                waiting.failed += verdicts.failed

    def _hear_verdicts(self, task: int, verdicts: Verdicts) -> None:
        spout = self._wired.spouts[task]
        if verdicts.complete:
            roots = (
                verdicts.complete[0]
                if len(verdicts.complete) == 1
                else np.concatenate(verdicts.complete)
            )
            now = self._clock.now()
            guard(spout.task, "ack", partial(spout.complete, roots, now))
        if verdicts.failed:
            why = dict(verdicts.failed)
            failed = np.array(list(why), np.uint64)
            guard(spout.task, "fail", partial(spout.failed, failed, why))

    def _pass_on_postponed(self, bolt: Any) -> None:
        if roots := getattr(bolt, "postponed", None):
            self._postpone(np.array(roots, np.uint64))
            bolt.postponed = []

    def _postpone(self, roots: U64) -> None:
        owners = incarnations_of(roots) % len(self.plan.spouts)
        for index in set(owners.tolist()):
            owner, mine = self.plan.spouts[index].id, roots[owners == index]
            if owner in self._wired.spouts:
                self._wired.spouts[owner].postpone(mine, self._clock.now())
            else:
                self._lane_to(owner).content.postponed += mine.tolist()

    def _hear_grants(self, packet: Packet) -> None:
        for source, target, seq, window in packet.grants:
            channel = self._wired.channels.get((source, target))
            if isinstance(channel, RemoteChannel):
                channel.granted(seq, window)

    def _give_grants(self, now: float) -> None:
        """Tell senders what was processed: at once where they may run dry, else now and then."""
        time_is_up = self._grant_at_s is not None and now >= self._grant_at_s
        for flow in self._inflows.values():
            if flow.records and (time_is_up or flow.due):
                self._lanes[flow.worker].content.grants.append(flow.grant())
        if any(flow.records for flow in self._inflows.values()):
            self._grant_at_s = self._grant_at_s or now + _GRANT_S
        else:
            self._grant_at_s = None

    def _lane_to(self, task: int) -> Lane:
        return self._lanes[self._place[task].worker]

    def _peer_died(self, peer: int, now: float) -> None:
        self._losses.peer_died(peer)
        self._inflows = {key: flow for key, flow in self._inflows.items() if flow.worker != peer}
        self._dispatch_reports()
        self._losses.sweep(peer, now)

    def _refuse(self, channel: RemoteChannel, bad: Batch, error: Unserialisable) -> None:
        self._losses.cannot_travel(channel, bad, error)  # made after the lanes that call it
