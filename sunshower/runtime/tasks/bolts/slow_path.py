"""What a bolt meets rarely; separate because it wraps the slices of the ordinary path.

`BoltRun` in task_scheduler.py asks one question for each slice, `BoltTask.is_ordinary`. If the
answer is no, the slice passes through `SlowPath`:

    it waits, or is paused           nothing is taken, or one input
    it is quarantined                its inputs fail
    a generator has not ended        it continues, before other inputs
    calls are in progress            they go on; no input is taken during a pause
    a new object is on trial         one input at a time
    it has ended its process         each record is noted before it is processed
    an experiment disturbs it        its code raises, or takes longer
    `check_mutation`                 records are compared before and after

The last three wrap the function that `process` calls, or `process` itself, for one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from typing import Any

from sunshower.clock import Clock
from sunshower.errors import TopologyFailed, user_errors
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.events.injected_faults import NO_FAULTS
from sunshower.runtime.tasks.bolts.bolt_task import BoltTask, Note, Trial
from sunshower.runtime.tasks.user_code import Raised, UserCodeCalls
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.reports import FailedTrees
from sunshower.runtime.transport.channels import Taken
from sunshower.runtime.value_copies import picture
from sunshower.topologies.components import BatchBolt, Bolt, Context

Process = Callable[[Batch], Batch | None]


# ---- wrappers of user code -----------------------------------------------------------------------


def noting(note: Note, call: Callable[..., Any], batch: Batch) -> Callable[..., Any]:
    """A wrapper of `call` for the records of `batch` in order; it calls `note` before each."""
    indices = count()

    def noted(*arguments: Any) -> Any:
        note(batch.roots_of(next(indices)))
        return call(*arguments)

    return noted


# `check_mutation`: ends the topology, naming the bolt, if a bolt changes an input record.
#
# Within a worker, records are passed by reference: a list in a record, or a dataclass that is not
# frozen, is one object for every bolt that receives it and for the spout that may replay it. So a
# bolt must not change its input. With `check_mutation` off (the default) nothing detects it: other
# tasks of the worker, and a replay, see the changed record; tasks in other workers see the
# original.
#
# The check pickles every record before and after, several µs each: it is for tests. It does not
# cover records that cannot be pickled, calls of an async function that go on after the slice, nor
# a tuple that a manual bolt has kept from an earlier batch. Arrow tables are immutable.


def process_unchanged(name: str, process: Process, batch: Batch) -> Batch | None:
    """Like `process`; raises TopologyFailed, naming bolt and record, for a changed record."""
    if batch.is_table:
        return process(batch)
    before = [_picture(record) for record in batch.records]
    texts = [f"{record!r:.200}" for record in batch.records]
    rest = process(batch)
    for record, earlier, was in zip(batch.records, before, texts, strict=True):
        if _picture(record) != earlier:
            raise TopologyFailed(
                f"{name} changed a record that it was handed, "
                f"{was}, to {record!r:.200}. Others hold the same object: make a new one "
                "(check_mutation is on)"
            )
    return rest


def _picture(record: Any) -> bytes | None:
    try:
        return picture(record)
    except user_errors():  # of __reduce__ and __getstate__ of a class that is no record
        return None


# ---- slow path -----------------------------------------------------------------------------------

_FIRST_TRY = 3  # of a pause: shorter outages need no new object


@dataclass(slots=True)
class _Cost:
    """What some inputs have cost a bolt so far, in one or several slices."""

    inputs: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0


class SlowPath:
    """The slow path of one bolt. The functions are those of its `BoltRun`, which this wraps."""

    def __init__(
        self,
        bolt: BoltTask,
        failed_trees: FailedTrees,
        call: UserCodeCalls,
        clock: Clock,
        context_of: Callable[[BoltTask], Context],
        take: Callable[..., Taken],
        finish: Callable[[Taken], int],
    ) -> None:
        self._bolt = bolt
        self._care = bolt.supervision
        self._failed_trees = failed_trees
        self._call = call
        self._clock = clock
        self._context_of = context_of
        self._take, self._finish = take, finish
        self._other: Any = None  # during a trial, the object that the task does not use now
        self._cost = _Cost()  # of the unfinished input

    def watch(self, seconds: float) -> None:
        """Note each record of the bolt for `seconds`, because its code may end the process."""
        until_s = self._clock.now() + seconds
        note = self._call.watch(self._bolt.task.id, until_s)
        self._bolt.rare = self._bolt.rare._replace(note=note, note_until_s=until_s)

    def may_run(self) -> bool:
        """Whether the task may take an input, or continue with one. While calls are in progress it
        may not during a pause, when one input is tried at a time, nor while the record that ends
        the process is looked for."""
        rare = self._bolt.rare
        if self._care.waits:
            return False
        if not rare.in_progress:
            return True
        is_tried = rare.trial is Trial.NEW or rare.note is not None
        return self._care.wait is None and not is_tried and self._bolt.inputs_max > 0

    def slice(self) -> int:
        """Do one slice of work. Returns how many inputs were taken."""
        if self._bolt.rare.unfinished is not None:
            return self._go_on()
        inputs = 0
        if self._care.wait is None or self._begin_trial():
            taken = self._take(self._limit(), refuses=self._care.is_quarantined)
            if len(taken.batch):
                self._process_or_refuse(taken)
            inputs = self._finish(taken)
            if not self._bolt.rare.in_progress:
                self._end_trial()
        return inputs

    def end_slice(self, taken: int, seconds: float, waited_s: float, now: float) -> None:
        """Pause the task if that was requested, and measure what the inputs have cost, once they
        are finished."""
        cost, rare = self._cost, self._bolt.rare
        cost.inputs += taken
        cost.seconds += seconds
        cost.waited_s += waited_s
        if self._begin_pause(now):
            self._cost = _Cost()
        elif rare.unfinished is None:
            if not rare.in_progress:
                self._bolt.measure(cost.inputs, cost.seconds, cost.waited_s)
            self._cost = _Cost()

    def end_calls(self, wait_s: float) -> None:
        """Let the calls in progress go on for `wait_s`, or until one has ended, and settle the
        inputs whose calls have."""
        bolt, calls, settled = self._bolt, self._bolt.rare.in_progress, 0
        assert calls is not None
        ended = self._call(
            bolt.task, "the calls in progress", lambda: [*calls.ended(wait_s)], calls.roots
        )
        for batch, outcomes in ended:
            self._guard(partial(bolt.end_calls, batch, outcomes), batch)
            settled += len(batch)
        now = self._clock.now()
        if settled:
            bolt.measure(settled, calls.seconds(now))
        if not calls:
            self._end_trial()
            self._begin_pause(now)

    def _begin_pause(self, now: float) -> bool:
        """Whether the task is paused now."""
        is_paused = self._care.begin_pause(now) != -inf
        if is_paused:
            self._care.check_doubt(now)
        return is_paused

    def _limit(self) -> int:
        """How many records to take at once: one in a trial, and one if each is noted and the bolt
        takes tables or calls an async function. Ends the noting if its time is over."""
        bolt, rare = self._bolt, self._bolt.rare
        if rare.trial is not None:
            return 1
        if rare.note is not None:
            if self._clock.now() < rare.note_until_s:
                return 1 if bolt.intake.joins or bolt.intake.at_once else bolt.inputs_max
            bolt.rare = rare._replace(note=None)
        return bolt.inputs_max

    def _go_on(self) -> int:
        """Send the next piece of the unfinished input, or drop the input if its tree has failed.
        Returns 0: the input was counted before."""
        bolt, unfinished = self._bolt, self._bolt.rare.unfinished
        assert unfinished is not None
        if not len(self._failed_trees.without_failed(unfinished.input)):
            bolt.expired += 1
            bolt.rare = bolt.rare._replace(unfinished=None)
        else:
            self._guard(bolt.go_on, unfinished.input)
        return 0

    def _process_or_refuse(self, taken: Taken) -> None:
        """Process a batch; a quarantined task fails it."""
        if self._care.is_quarantined:
            self._care.check_opening()
            self._bolt.refuse(taken.batch, self._care.failure)
            return
        rest = self._guard(partial(self._wrapped, taken.batch), taken.batch)
        taken.left += [] if rest is None else [rest]

    def _guard(self, call: Callable[[], Batch | None], batch: Batch) -> Batch | None:
        """The result of a call of user code for a batch; if it raises, all inputs fail."""
        try:
            return self._call(self._bolt.task, "the processing", call, batch.roots)
        except Raised as raised:
            self._bolt.fail_all(batch, raised)
            return None

    def _wrapped(self, batch: Batch) -> Batch | None:
        """`BoltTask.process`, with what wraps the bolt's code."""
        bolt, call = self._bolt, self._bolt.call
        faults, note = bolt.instrument.faults, bolt.rare.note
        try:
            if faults is not NO_FAULTS:
                bolt.call = bolt.disturbed(faults, batch)
            if note is not None:
                bolt.call = noting(note, bolt.call, batch)
            if bolt.rare.checks_mutation:
                return process_unchanged(bolt.task.name, bolt.process, batch)
            return bolt.process(batch)
        finally:
            bolt.call = call

    # ---- trials ---------------------------------------------------------------------------------
    # Replace the object of a paused bolt if its own connection does not recover after an outage.
    #
    # A bolt that opened a connection in prepare() may hold a dead one when the dependency is
    # available again. Storm restarts the whole worker then. Here a new object is tried, beside the
    # old one:
    #
    #     paused, third try and every second one after it ──▶ a new object is prepared, gets one
    #         input
    #         it fails    ──▶ the new object is closed; the old one continues
    #         it succeeds ──▶ the old object gets the next input
    #                             it succeeds ──▶ the old object stays, with its memory
    #                             it fails    ──▶ the old object is closed; the new one stays
    #
    # So a bolt that reconnects by itself loses nothing. The input that the new object processed is
    # replayed and charged no attempt. If the class has snapshot() and restore(), the new object
    # starts with the old one's snapshot.

    def _begin_trial(self) -> bool:
        """Called before a slice of a paused bolt. Returns whether it may process an input now."""
        care, bolt = self._care, self._bolt
        if bolt.rare.trial is not None:
            return True
        due = care.tries >= _FIRST_TRY and (care.tries - _FIRST_TRY) % 2 == 0
        if not due or not _has_prepare(bolt.bolt):
            return True
        old = bolt.bolt
        try:
            state = self._call(bolt.task, "snapshot", old.snapshot) if _keeps_state(old) else None
            self._call(bolt.task, "prepare", partial(bolt.prepare, self._context_of(bolt)))
            if _keeps_state(old):
                self._call(bolt.task, "restore", partial(bolt.bolt.restore, state))
        except Raised as raised:
            bolt.adopt(old)
            if care.wait is not None:
                care.pause(care.kind_of(raised), raised.error)
            return False
        self._other = old
        bolt.rare = bolt.rare._replace(trial=Trial.NEW)
        return True

    def _end_trial(self) -> None:
        """Called after a slice: evaluate the trial, if one is under way."""
        bolt, trial = self._bolt, self._bolt.rare.trial
        if trial is None or bolt.rare.unfinished is not None:
            return
        if trial is Trial.NEW and not bolt.last_failed:
            self._swap()
            bolt.rare = bolt.rare._replace(trial=Trial.OLD)
            return
        bolt.rare = bolt.rare._replace(trial=None)
        if bolt.last_failed:
            self._swap()
        other, self._other = self._other, None
        if hasattr(other, "cleanup"):
            bolt.notify("cleanup", other.cleanup)
        if trial is Trial.OLD and bolt.last_failed:
            self._tell()

    def _swap(self) -> None:
        current = self._bolt.bolt
        self._bolt.adopt(self._other)
        self._other = current

    def _tell(self) -> None:
        memory = (
            "its snapshot was restored"
            if _keeps_state(self._bolt.bolt)
            else "what it held in memory is lost"
        )
        task = self._bolt.task
        text = (
            f"{task.name} was created again: the connections of the old object did "
            f"not come back after an outage; {memory}"
        )
        self._care.note(Raised(TaskError(task.component, task.index, task.worker, text)))


def _keeps_state(bolt: Any) -> bool:
    snapshot = getattr(type(bolt), "snapshot", None)
    return snapshot is not None and snapshot not in (Bolt.snapshot, BatchBolt.snapshot)


def _has_prepare(bolt: Any) -> bool:
    prepare = getattr(type(bolt), "prepare", None)
    return prepare is not None and prepare not in (Bolt.prepare, BatchBolt.prepare)
