"""The spout of a batch group: it tells when a batch begins, is committed, and is done.

    next_tuple, ack, fail ──▶ MasterCoordinator ──▶ a step: first the store, then the tuple
    $batch    tracked by its attempt; acked: the batch is processed everywhere
    $commit   tracked by its attempt; acked: all its states are written
    $success  followed by nobody; it comes when the store knows that the next batch is current

Storm: org.apache.storm.trident.topology.MasterBatchCoordinator
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sunshower.errors import ReportedFailedBatch, TopologyFailed, Unavailable
from sunshower.failures import Cause, Failure
from sunshower.stores.tree import Tree
from sunshower.topologies.components import Context, Spout, SpoutCollector
from sunshower.trident.attempts import BATCH, COMMIT, SUCCESS, Attempt, Word
from sunshower.trident.coordinator import Advance, Begin, Commit, MasterCoordinator, Step
from sunshower.trident.letters import packed
from sunshower.trident.nodes import decode
from sunshower.trident.resting import Rest
from sunshower.trident.spouts.port import Coordinator, TridentSpout
from sunshower.trident.stages.plan import Skip
from sunshower.trident.stored import CoordinatorMemory, coordinator_path, meta_path
from sunshower.trident.timing import Timing

_TOLD_AGAIN_S = 6.0  # how often it is told that batches fail because something is away


def is_to_blame(failure: Failure, own: Collection[str]) -> bool:
    """Whether a failure counts as an attempt of the batch, as it would of a tuple: see failures.py.

    What the group's `own` bolts fail is late or torn by a death, and what is away is waited for.
    """
    if failure.cause is Cause.FAILED and (not failure.component or failure.component in own):
        return False
    return failure.is_charged


@dataclass(frozen=True)
class Plan:
    """What the master must know of its group."""

    group: str
    spouts: Mapping[str, TridentSpout]
    store: Callable[[], Tree]
    root: str
    max_batches: int
    interval_s: float
    skip: Skip
    bolts: frozenset[str]  # its own; others may be in the tree of a batch, too


class MasterSpout(Spout[Any]):
    """See above. Emissions may also come from `ack` and `fail`; new batches never do."""

    streams = {BATCH: Word, COMMIT: Word, SUCCESS: Word}  # noqa: RUF012
    replay = False

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._out: SpoutCollector[Any] | None = None
        self._causes: dict[int, Failure] = {}  # txid → the last failure that counted
        self._quiet_until_s = 0.0

    def open(self, context: Context) -> None:
        """Begin a life. Raises Unavailable while the store or a source is away."""
        plan, self._context, self._clock = self._plan, context, context.clock
        self._tree = plan.store()
        try:
            about = (plan.root, list(plan.spouts), context.topology)
            self._memory = CoordinatorMemory(self._tree, *about)
            self._coordinators: dict[str, Coordinator] = {
                id: spout.coordinator(self._tree, coordinator_path(plan.root, id), context)
                for id, spout in plan.spouts.items()
            }
        except BaseException:
            self._tree.close()
            raise
        self._machine = MasterCoordinator(
            self._memory.current,
            self._memory.attempts,
            max_batches=plan.max_batches,
            interval_s=plan.interval_s,
            attempts_max=plan.skip.attempts,
            can_skip=plan.skip.dead_letters is not None,
            skipped=self._memory.skipped,
            failures=self._memory.failures,
        )
        self._rest = Rest(self._tree, plan.root, {id: len(context.tasks[id]) for id in plan.spouts})
        self._timing = Timing(context.noted)

    def next_tuple(self, out: SpoutCollector[Any]) -> None:
        self._out = out
        self._go_on(out, self._is_ready)

    def ack(self, message_id: Any) -> None:
        attempt: Attempt = message_id
        if attempt.epoch == self._memory.epoch and self._machine.acked(*attempt[:2]):
            self._timing.acked(attempt, self._clock.now())
            self._answer()

    def fail(self, message_id: Any, failure: Failure) -> None:
        attempt: Attempt = message_id
        counts = is_to_blame(failure, self._plan.bolts)
        if attempt.epoch != self._memory.epoch or not self._machine.failed(
            *attempt[:2], self._clock.now(), counts=counts
        ):
            return
        self._timing.failed(attempt, failure, self._clock.now())
        machine = self._machine
        if counts:
            self._causes[attempt.txid] = failure
            # What is away now keeps it when the next attempt begins; who gives up says so anyway.
            with suppress(Exception if machine.gave_up else Unavailable):
                self._keep_failures(attempt.txid)
        if machine.gave_up:
            raise TopologyFailed(self._end(attempt, failure))
        self._answer()
        reported = failure.exception == ReportedFailedBatch.__name__
        is_outage = failure.cause is Cause.UNAVAILABLE
        if reported or (is_outage and self._may_tell()):  # noted as an error of this task
            raise ReportedFailedBatch(f"batch {attempt.txid}, attempt {attempt.attempt}: {failure}")

    def deactivate(self) -> None:
        self._out = None  # tasks may change places, and the next collector be another one

    def snapshot(self) -> None:
        """Nothing: all of it is in the store."""

    def restore(self, state: Any) -> None:
        """Nothing, likewise."""

    def figures(self) -> Mapping[str, float]:
        found = self._timing.figures(self._machine, self._clock.now())
        return found | {
            f"spout {id}/tasks": len(self._context.tasks[id]) for id in self._plan.spouts
        }

    def close(self) -> None:
        for coordinator in self._coordinators.values():
            coordinator.close()
        self._tree.close()

    def _may_tell(self) -> bool:
        """Whether it is time to tell again that something is away."""
        now = self._clock.now()
        if now < self._quiet_until_s:
            return False
        self._quiet_until_s = now + _TOLD_AGAIN_S
        return True

    def _is_ready(self, txid: int) -> bool:
        return any(one.is_ready(txid) for one in self._coordinators.values())

    def _answer(self) -> None:
        """Say at once what follows from an ack or a failure. New batches wait for next_tuple,
        which nobody calls while the topology drains; so does what the store must know before."""
        if self._out is None:
            return
        try:
            self._go_on(self._out, lambda _: False)
        except Unavailable:
            return  # next_tuple tries it again

    def _go_on(self, out: SpoutCollector[Any], may_begin: Callable[[int], bool]) -> None:
        now = self._clock.now()
        while (step := self._machine.next_step(now, may_begin)) is not None:
            self._carry_out(step, out)

    def _carry_out(self, step: Step, out: SpoutCollector[Any]) -> None:
        machine, now = self._machine, self._clock.now()
        id = Attempt(step.txid, step.attempt, self._memory.epoch)
        match step:
            case Begin(txid, attempt, skip):
                why = self._why(txid) if skip else None
                self._memory.begin({**machine.attempts, txid: attempt}, machine.failures)
                machine.done(step, now)
                self._timing.begun(id, now, skip=skip)
                out.emit(Word(*id, skip, why, machine.current), id, stream=BATCH)
            case Commit():
                machine.done(step, now)
                out.emit(Word(*id, machine.active[step.txid].skip), id, stream=COMMIT)
            case Advance(txid, _):
                skipped = machine.active[txid].skip
                self._memory.committed(txid)
                now = self._clock.now()  # that took its time, too
                machine.done(step, now)
                self._causes.pop(txid, None)
                self._timing.committed(id, now, skipped=skipped)
                out.emit(Word(*id, skipped), stream=SUCCESS)
                if self._was_last(txid):
                    machine.finish()
                    out.finish()
                else:
                    machine.rest(self._rest.seconds(), now)

    def _was_last(self, txid: int) -> bool:
        """Whether no spout will ever have rows again, after a batch that is committed."""
        for id, coordinator in self._coordinators.items():
            path = meta_path(self._plan.root, id, txid)
            node = self._tree.get(path)
            if node is None or not coordinator.is_last(decode(node, path)):
                return False
        return True

    def _keep_failures(self, txid: int) -> None:
        """For a later life of this task, which may not see the next attempt begin. Who has given up
        is run again when all is mended, and then has all attempts."""
        machine = self._machine
        if machine.skips(txid):
            self._why(txid)
        self._memory.begin(machine.attempts, {} if machine.gave_up else machine.failures)

    def _why(self, txid: int) -> list[Any]:
        """Why a batch is skipped; it is kept before anybody is told of it."""
        if txid not in self._memory.skipped:
            self._memory.skip(txid, packed(self._causes[txid], self._plan.skip.attempts))
        return self._memory.skipped[txid]

    def _end(self, attempt: Attempt, failure: Failure) -> str:
        times, skip = self._plan.skip.attempts, self._plan.skip.dead_letters
        advice = (
            "Mend what raises, allow more attempts (Skip(attempts=…)), or put such batches aside: "
            'skip=Skip(dead_letters="dead.jsonl")'
            if skip is None
            else "Its rows were to be put aside, and that failed as well: mend that"
        )
        trace = f"\n{failure.traceback.rstrip()}" if failure.traceback else ""
        return (
            f"batch {attempt.txid} of group {self._plan.group!r} failed {times} times, the last "
            f"time, in attempt {attempt.attempt}, {failure}. {advice}.{trace}"
        )
