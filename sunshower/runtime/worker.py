"""One worker: its tasks, its lanes to the others, and the order in which things are done.

Facts come in as method calls (a packet, an answer, news of the peers); `step` does a slice of work
and `outgoing` says which packets to send. Nothing here knows Ray: a shell calls in a loop, and a
simulator or a test may do so in any order.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from sunshower.clock import Clock
from sunshower.errors import Unserialisable
from sunshower.failures import Cause
from sunshower.runtime.batch import Batch
from sunshower.runtime.blackbox import Recorder
from sunshower.runtime.bolt_task import BoltTask
from sunshower.runtime.calls import Calls
from sunshower.runtime.channels import Inflow, RemoteChannel
from sunshower.runtime.conditions import apply
from sunshower.runtime.credits import FIRST_WINDOW
from sunshower.runtime.disturbances import Disturbances
from sunshower.runtime.fence import Fence, Marks
from sunshower.runtime.havoc import Fate
from sunshower.runtime.history import Scribe, What
from sunshower.runtime.lanes import Inlet, Lane
from sunshower.runtime.losses import Losses
from sunshower.runtime.luggage import Luggage, Packer, pack_all
from sunshower.runtime.master import Welcome, Wish
from sunshower.runtime.metrics import TaskStats, WorkerStats
from sunshower.runtime.obituary import Obituary
from sunshower.runtime.opening import Opening
from sunshower.runtime.packets import Answer, Packet, read_content
from sunshower.runtime.plan import Plan
from sunshower.runtime.probations import Quarantine
from sunshower.runtime.records_spout import RecordsSpoutTask
from sunshower.runtime.relay import Relay
from sunshower.runtime.slices import Slices
from sunshower.runtime.spout_task import SpoutTask
from sunshower.runtime.supervision import Supervision
from sunshower.runtime.usercode import TaskError
from sunshower.runtime.wiring import wire

_LOOK_S = 1.0  # how often a worker tells how long its tasks have been waiting
_GRANT_S = 0.05  # what was processed is granted after this long, however little it is


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
        recorder: Recorder | None = None,
        *,
        delay_s: float = 0.0,
        quarantined: Mapping[int, Quarantine] | None = None,
        luggage: Mapping[int, Luggage] | None = None,
        scribe: Scribe | None = None,
        marks: Marks | None = None,
    ) -> None:
        """`delay_s`: before the tasks open (ackers and mail do not wait); `quarantined`: the tasks
        whose user code is not run at first, and why; `luggage`: of tasks that go on; `scribe`:
        keeps a history of what happens here; `marks`: see fence.py."""
        self.plan = plan
        self.worker = worker
        self.life = life
        self.inlet = inlet or Inlet(worker, life)
        self._clock = clock
        self._config = plan.graph.config
        self._lanes = {
            peer: Lane(worker, life, peer, self._config, plan.streams, self._refuse)
            for peer in plan.workers
            if peer != worker
        }
        recorder = recorder or Recorder()
        self._call = Calls(recorder, clock)
        self._wired = wire(
            plan,
            worker,
            life,
            generator,
            lambda peer: self._lanes[peer].ready,
            recorder=recorder,
            first_try_s=clock.now() + delay_s,
            quarantined=quarantined,
            scribe=scribe,
        )
        self._mourned: dict[int, int] = {}  # worker → its last life whose obituary was heard
        self._relay = Relay(plan, self._wired, self._lanes, self._call, clock)
        self._losses = Losses(plan, self._wired)
        self._inflows: dict[tuple[int, int], Inflow] = {}
        self._spouts = list(self._wired.spouts.values())
        self._fence_in(marks, recorder)
        tasks: list[BoltTask | SpoutTask] = [*self._wired.bolts.values(), *self._spouts]
        self._opening = Opening(plan, self._call, clock, tasks, luggage or {})
        own = (self._wired, self._config, self._call, clock, self._opening)
        self._slices = Slices(*own, self._lanes, self._relay)
        self._disturbances = Disturbances(plan, worker, self._wired, clock, generator)
        self._closed = False
        self._packed: dict[int, Luggage] | None = None  # then nothing happens here any more
        self._grant_at_s: float | None = None
        if scribe is not None:
            spouts = np.array([spout.task.id for spout in self._spouts], np.int64)
            scribe.note(What.BORN, values=spouts, detail=(worker, life))

    # ---- facts ----------------------------------------------------------------------------

    def welcome(self, welcome: Welcome, obituary: Obituary | None = None) -> None:
        """What the master has answered to the hello of this life; before the first step.

        `obituary`: of this worker's former life. Raises TopologyFailed for a message that its own
        spout's process has died of too often.
        """
        for spout in self._spouts:
            committed, drawn = welcome.positions.get(spout.task.id, (0, 0))
            spout.begin_at(committed, drawn, welcome.owed.get(spout.task.id))
            if obituary and obituary.task and (times := welcome.suspects.get(spout.task.id)):
                spout.accuse(times, obituary.failure(self.plan))
        if obituary and (bolt := self._wired.bolts.get(obituary.task or -1)):
            self._call.watch(bolt, self._config.message_timeout_s)
        self.peers(welcome.lives)
        for lane in self._lanes.values():  # the master's news of this life may not reach everybody
            lane.content.greets = self.life > 1
        self._disturbances.begin(welcome.wish.havoc)
        self.wish(welcome.wish)

    def peers(self, lives: Mapping[int, int], obituaries: Iterable[Obituary] = ()) -> None:
        """The workers that have said hello, and in which life each is; and what is known of the
        ends of former lives."""
        if self._packed is not None:
            return
        now = self._clock.now()
        for obituary in obituaries:
            if obituary.life > self._mourned.get(obituary.worker, 0):
                self._mourned[obituary.worker] = obituary.life
                self._losses.suspect(obituary, now)
        for peer, life in lives.items():
            lane = self._lanes.get(peer)
            if lane is None or life <= (lane.peer_incarnation or 0):
                continue
            self._losses.spouts_began(peer, life)
            is_new = lane.peer_incarnation is None
            lost = lane.peer_is(life)
            if not is_new:
                self._losses.lost(lost, peer, Cause.ACTOR_DIED, now)
                self._peer_died(peer, now)

    def receive(self, data: bytes) -> None:
        """A packet that the inlet has accepted."""
        if self._packed is not None:
            return  # what is in it was given up, and is emitted again in the next life
        packet = self._call.rebuild(partial(read_content, data, self.plan.streams, self._call))
        self.peers({packet.sender: packet.life})  # it may overtake the master's news of a new life
        if packet.life != self._lanes[packet.sender].peer_incarnation:
            return  # from a life that is over; the sweep takes care of what was in it
        self._hear_grants(packet)
        for task, report in packet.reports.items():
            self._relay.report(task, report)
        for task, verdicts in packet.verdicts.items():
            self._relay.verdicts(task, verdicts)
        if len(packet.failed):
            self._wired.failed_trees.note(packet.failed)
        if len(packet.postponed):
            self._relay.postpone(packet.postponed)
        for frame in packet.frames:
            key = (frame.batch.source, frame.target)
            if key not in self._inflows:
                self._inflows[key] = Inflow(*key, packet.sender, FIRST_WINDOW)
            if frame.error is None:
                self._inflows[key].arrived = frame.seq
                self._wired.inboxes[frame.target].put(frame.batch, self._inflows[key], frame.seq)
            else:
                self._losses.cannot_be_rebuilt(frame)
                self._inflows[key].put_aside(frame.seq)

    def answered(self, peer: int, seq: int, answer: Answer | None) -> None:
        """What the peer said to a packet; None when the call itself failed."""
        if self._packed is not None:
            return
        now = self._clock.now()
        lost = self._lanes[peer].answered(seq, answer, now)
        cause = Cause.BAD_FRAME if answer is Answer.REFUSED else Cause.ACTOR_DIED
        self._losses.lost(lost, peer, cause, now)

    def wish(self, wish: Wish) -> None:
        """What the spouts are to do from now on, and what disturbs the tasks here."""
        now = self._clock.now()
        apply(wish.conditions, self.plan, self._spouts, self.supervisions, now)
        if self._disturbances.wish(wish.havoc):
            for spout in self._spouts:
                self._call(spout.task, "fail", partial(spout.expire, now))
        if wish.active is not self._opening.active:
            self._opening.active = wish.active
            for spout in self._spouts:
                change = spout.activate if wish.active else spout.deactivate
                self._call(spout.task, "activate or deactivate", change)
        if wish.draining:
            self.drain()

    def drain(self) -> None:
        """Emit nothing fresh; finish what is open."""
        for spout in self._spouts:
            spout.drain()

    def pack(self, leaving: Container[int]) -> dict[int, Luggage]:
        """The end of this life, for a rebalance; `leaving` tasks are closed. See luggage.py.
        A second call packs nothing anew."""
        if self._packed is None:
            tasks: list[Packer] = [spout for spout in self._spouts if spout.spout is not None]
            tasks += [bolt for bolt in self._wired.bolts.values() if bolt.bolt is not None]
            now, left = self._clock.now(), self._opening.luggage_left
            self._packed = {**left, **pack_all(tasks, leaving, now, self._call)}
        return self._packed

    # ---- work -----------------------------------------------------------------------------

    def step(self) -> float | None:
        """Do a slice of work. Returns 0 if there may be more to do, the seconds to wait for the
        next thing that is due, or None if nothing is."""
        if self._packed is not None:
            return None
        now = self._clock.now()
        if self._opening.waiting:
            self._opening.look(now)
        for spout in self._spouts:
            if spout.next_look_s <= now:
                self._call(spout.task, "looking", partial(spout.look, now))
        if self._opening.tickers:
            self._slices.tick(now)
        worked = self._slices.run_one(now)
        if self._wired.overload:
            self._losses.overloaded()
        self._relay.dispatch()
        self._give_grants(now)
        return 0 if worked and self._may_go_on else self._until_next(now)

    def outgoing(self) -> Iterator[tuple[int, int, bytes]]:
        """(peer, seq, bytes) of each packet to be sent now; `answered` wants the answers."""
        if self._packed is not None:
            return
        now = self._clock.now()
        for peer, lane in self._lanes.items():
            if lane.ready or lane.content:
                while (packet := lane.next_packet(now)) is not None:
                    yield (peer, *packet)
        self._relay.dispatch()  # of records that could not travel

    def fate(self, peer: int) -> Fate:
        """What an experiment does to a packet that leaves for `peer` now; ask once for each."""
        return self._disturbances.fate(peer)

    @property
    def idle(self) -> bool:
        """Nothing waits in an inbox and nothing is on its way out."""
        return not self._has_inputs and all(lane.idle for lane in self._lanes.values())

    @property
    def _has_inputs(self) -> bool:
        inboxes, bolts = self._wired.inboxes.values(), self._wired.bolts.values()
        waiting = any(inbox.entries for inbox in inboxes)
        return waiting or any(bolt.unfinished is not None for bolt in bolts)

    @property
    def finished(self) -> bool:
        """Every spout here is done, and the worker is idle."""
        return self.idle and all(spout.done for spout in self._spouts)

    def stats(self) -> WorkerStats:
        """The worker at this moment."""
        for care in self.supervisions:
            care.now_s = self._clock.now()
        spouts = [spout.stats() for spout in self._spouts]
        bolts = [self._queue(bolt.stats(), bolt) for bolt in self._wired.bolts.values()]
        tasks = (*self._wired.bolts.values(), *self._spouts)
        untracked = [self._losses.untracked, *(task.untracked for task in tasks)]
        return WorkerStats(
            self.worker,
            self.life,
            (*spouts, *bolts),
            self.idle,
            self._losses.count,
            next(filter(None, untracked), None),
            at_rest=not any(spout.active for spout in self._spouts),
            crash_reports=self._call.crash_reports,
        )

    def pulse(self) -> tuple[object, ...]:
        """While it does not change, `stats` would tell the master nothing new, but for latencies,
        positions and figures; at a tenth of its price."""
        tasks = (*self._wired.bolts.values(), *self._spouts)
        at_rest = not any(spout.active for spout in self._spouts)
        return (self.idle, at_rest, *[task.pulse() for task in tasks])

    def results(self, component: str) -> list[Any]:
        """What `result()` of each of the component's tasks in this worker says."""
        spouts = [t.spout for t in self._spouts if t.task.component == component]
        bolts = [t.bolt for t in self._wired.bolts.values() if t.task.component == component]
        return [one.result() if hasattr(one, "result") else None for one in (*spouts, *bolts)]

    @property
    def supervisions(self) -> list[Supervision]:
        """Of all tasks here that run user code."""
        return [task.supervision for task in (*self._wired.bolts.values(), *self._spouts)]

    def check_invariants(self) -> None:
        """Raise AssertionError if a book here is not in order, or more is open than is allowed."""
        for acker in self._wired.ackers.values():
            acker.ledger.check_invariants()
        for spout in self._spouts:
            spout.pending.check_invariants()
            held = len(spout.pending) + len(spout.replays.line)
            assert held <= self._config.spout_slots, f"{spout.task.component}: {held} are open"

    def notices(self) -> list[str]:
        """What the log should say of failures since the last look; all of it once closed."""
        now = inf if self._closed else self._clock.now()
        return [line for spout in self._spouts for line in spout.replays.notices.take(now)]

    def close(self) -> list[TaskError]:
        """The topology stops: every open task is told. Returns what they had to say against it."""
        self._closed = True
        tasks = [*self._spouts, *self._wired.bolts.values()]
        left = {id for id, own in (self._packed or {}).items() if own.instance is None}  # elsewhere
        said = (task.close() for task in tasks if task.task.id not in left)
        return [error for error in said if error is not None]

    # ---- how ------------------------------------------------------------------------------

    def _fence_in(self, marks: Marks | None, recorder: Recorder) -> None:
        for spout in (one for one in self._spouts if isinstance(one, RecordsSpoutTask)):
            spout.recorder = recorder
            if marks is not None:
                spout.fence = Fence(spout.task.id, marks, self._clock)

    def _queue(self, stats: TaskStats, bolt: BoltTask) -> TaskStats:
        """What waits before a bolt task belongs to its statistics."""
        queued = len(self._wired.inboxes[bolt.task.id])
        return replace(stats, queued=queued, queue_s=queued * (bolt.service.pace_s or 0.0))

    @property
    def _may_go_on(self) -> bool:
        if self._spouts:
            return True
        return self._has_inputs

    def _until_next(self, now: float) -> float | None:
        soonest = inf if self._grant_at_s is None else self._grant_at_s
        soonest = min(soonest, self._slices.next_probe_s())
        if any(care.wait is not None for care in self.supervisions):
            soonest = min(soonest, now + _LOOK_S)
        for spout in self._spouts:
            soonest = min(soonest, spout.next_look_s)
            if self._slices.may_emit(spout):
                soonest = min(soonest, spout.next_emit_s)
        for lane in self._lanes.values():
            if (retry_s := lane.retry_s) is not None:
                soonest = min(soonest, retry_s)
        for ticker in self._opening.tickers:
            soonest = min(soonest, ticker.look_s(now))
        for task in self._opening.waiting:
            soonest = min(soonest, task.supervision.retry_s)
        return None if soonest == inf else max(soonest - now, 0.0005)

    def _hear_grants(self, packet: Packet) -> None:
        for source, target, seq, window in packet.grants:
            channel = self._wired.channels.get((source, target))
            if isinstance(channel, RemoteChannel):
                channel.granted(seq, window)

    def _give_grants(self, now: float) -> None:
        """Tell senders what was processed: at once where they may run dry, else now and then."""
        time_is_up, left = self._grant_at_s is not None and now >= self._grant_at_s, False
        for flow in self._inflows.values():
            if flow.records:
                if time_is_up or flow.due:
                    self._lanes[flow.worker].content.grants.append(flow.grant())
                else:
                    left = True
        self._grant_at_s = (self._grant_at_s or now + _GRANT_S) if left else None

    def _peer_died(self, peer: int, now: float) -> None:
        self._losses.peer_died(peer)
        self._inflows = {key: flow for key, flow in self._inflows.items() if flow.worker != peer}
        self._relay.dispatch()
        self._losses.sweep(peer, now)

    def _refuse(self, channel: RemoteChannel, bad: Batch, error: Unserialisable) -> None:
        self._losses.cannot_travel(channel, bad, error)  # made after the lanes that call it
