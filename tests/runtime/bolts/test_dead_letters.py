"""Tests of dead letters: a message without attempts left becomes one, or halts the topology."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from sunshower import Bolt, Cause, Config, Context, DeadLetter, Failure, Retry, Spout, Topology
from sunshower.clock import ManualClock
from sunshower.errors import TopologyFailed
from sunshower.runtime.inline import Finished, run_inline
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.tasks.bolts.dead_letters import dead_letter
from sunshower.runtime.worker import Worker
from tests.runtime.rig import Rig, records_of

POISON = 7
COUNT = 20
RETRY = Retry(attempts=3, dead_letters=True)


class Number(NamedTuple):
    n: Any


class RecordsVerdicts(Spout[Any]):
    """Records the acks and failures that it receives."""

    emits = Number

    def open(self, context: Context) -> None:
        self.acked: list[Any] = []
        self.failures: list[Failure] = []

    def ack(self, message_id: Any) -> None:
        self.acked.append(message_id)

    def fail(self, message_id: Any, failure: Failure) -> None:
        self.failures.append(failure)

    def result(self) -> tuple[list[Any], list[Failure]]:
        return self.acked, self.failures


class RowSpout(RecordsVerdicts):
    def records(self) -> Iterator[Number]:
        return map(Number, range(COUNT))


class TableSpout(RecordsVerdicts):
    def tables(self) -> Iterator[pa.Table]:
        yield pa.table({"n": range(COUNT)})


class NextTupleSpout(RecordsVerdicts):
    """Its message ids are lists, which cannot be hashed."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.left = iter(range(COUNT))

    def next_tuple(self, out: Any) -> None:
        n = next(self.left, None)
        if n is None:
            out.finish()
        else:
            out.emit(Number(n), [n])


class Picky(Bolt[Number, None]):
    """Raises for POISON."""

    def prepare(self, context: Context) -> None:
        self.seen: list[int] = []

    def process(self, record: Number) -> None:
        self.seen.append(record.n)
        if record.n == POISON:
            raise ValueError(f"no {record.n}")

    def result(self) -> list[int]:
        return self.seen


class KeepsLetters(Bolt[DeadLetter, None]):
    """Keeps the dead letters; raises for the first `refuses` of them."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses = refuses

    def prepare(self, context: Context) -> None:
        self.seen: list[DeadLetter] = []

    def process(self, record: DeadLetter) -> None:
        if self.refuses:
            self.refuses -= 1
            raise OSError("disk full")
        self.seen.append(record)

    def result(self) -> list[DeadLetter]:
        return self.seen


def topology(
    spout: Spout[Any], retry: Retry = RETRY, refuses: int = 0, **settings: Any
) -> Topology:
    here = Topology("t", **settings)
    numbers = here.spout("numbers", spout, retry=retry)
    numbers.shuffle().bolt("picky", Picky)
    if retry.dead_letters is True:
        numbers.stream("dead_letters").shuffle().bolt("letters", KeepsLetters(refuses))
    return here


def run(here: Topology) -> Finished:
    return run_inline(here.graph(), clock=ManualClock(), steps_max=10_000)


# ---- records, tables and next_tuple -------------------------------------------------------------


@pytest.mark.parametrize(
    "spout", [RowSpout(), TableSpout(), NextTupleSpout()], ids=["rows", "columns", "own"]
)
def test_poison_becomes_a_dead_letter_after_its_attempts_and_all_others_are_acked(
    spout: RecordsVerdicts,
) -> None:
    finished = run(topology(spout))
    assert sorted(finished.results["picky"][0]) == sorted([*range(COUNT), POISON, POISON])
    (letter,) = finished.results["letters"][0]
    id = [POISON] if isinstance(spout, NextTupleSpout) else POISON
    reason = f"ValueError: no 7 (step `Picky.process`, field `n` of {Number(7)!r})"
    place = ("picky", 0, 0, reason, "ValueError")
    assert letter[:10] == (id, {"n": POISON}, "numbers", 3, "exception", *place)
    assert "in process\n" in letter.traceback
    assert 'raise ValueError(f"no {record.n}")' in letter.traceback
    acked, failures = finished.results["numbers"][0]
    assert len(acked) == COUNT
    assert acked[-1] == id, "acked only after its dead letter"
    assert [(failure.cause, failure.attempt) for failure in failures] == [
        (Cause.EXCEPTION, attempt) for attempt in (1, 2, 3)
    ]
    counts = finished.snapshot.component("numbers")
    assert (counts.acked, counts.dead, counts.failed, counts.replayed) == (COUNT, 1, 3, 3)
    assert counts.causes == {"exception": 3}


@pytest.mark.parametrize(
    "spout", [RowSpout(), TableSpout(), NextTupleSpout()], ids=["rows", "columns", "own"]
)
def test_without_dead_letters_poison_halts_the_topology_with_its_last_failure(
    spout: RecordsVerdicts,
) -> None:
    message = r"message \[?7\]? of spout 'numbers' failed 2 times.*no 7.*dead_letters=.*in process"
    with pytest.raises(TopologyFailed, match=f"(?s){message}"):
        run(topology(spout, Retry(attempts=2)))


def test_attempts_max_is_for_spouts_without_a_retry_of_their_own() -> None:
    here = Topology("t", attempts_max=4)
    here.spout("numbers", RowSpout()).shuffle().bolt("picky", Picky)
    with pytest.raises(TopologyFailed, match="failed 4 times"):
        run(here)
    with pytest.raises(TopologyFailed, match="failed 2 times"):
        run(topology(RowSpout(), Retry(attempts=2), attempts_max=4))


def test_dead_letter_is_written_as_a_line_of_json(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    run(topology(RowSpout(), Retry(attempts=2, dead_letters=path)))
    (line,) = path.read_text().splitlines()
    letter = json.loads(line)
    assert tuple(letter) == DeadLetter._fields
    assert (letter["message_id"], letter["record"], letter["attempts"]) == (7, {"n": 7}, 2)


def test_poison_waits_for_its_back_off_and_its_dead_letter_does_not_wait() -> None:
    clock = ManualClock()
    times: list[float] = []

    class Timed(Picky):
        def process(self, record: Number) -> None:
            if record.n == POISON:
                times.append(clock.now())
            super().process(record)

    here = Topology("t")
    retry = Retry(attempts=4, initial_s=1, factor=3, max_s=5, jitter=0, dead_letters=True)
    numbers = here.spout("numbers", RowSpout(), retry=retry)
    numbers.shuffle().bolt("picky", Timed)
    numbers.stream("dead_letters").shuffle().bolt("letters", KeepsLetters())
    run_inline(here.graph(), clock=clock, steps_max=10_000)
    assert times == pytest.approx([0, 1, 4, 9], abs=0.01)
    assert clock.now() == pytest.approx(9, abs=0.01)


# ---- a dead letter is a tuple, too --------------------------------------------------------------


def test_message_is_settled_only_when_its_dead_letter_is() -> None:
    here = Rig(topology(RowSpout(), Retry(attempts=1, dead_letters=True)))
    spout = here.spout("numbers")
    spout.emit(0.0, COUNT)
    spout.failed(spout.pending.all_roots(), Failure(Cause.FAILED, "picky"), 0.0)
    assert spout.emit(0.0, 100) == COUNT
    assert len(records_of(here.sent("letters"))) == COUNT
    assert not spout.done
    assert spout.spout.acked == []
    assert spout.next_look_s == 30.0, "the dead letter has a deadline"
    spout.complete(spout.pending.all_roots(), 1.0)
    assert spout.done
    assert spout.spout.acked == list(range(COUNT))


def test_dead_letter_that_fails_is_emitted_again() -> None:
    finished = run(topology(RowSpout(), refuses=2))
    (letter,) = finished.results["letters"][0]
    assert letter.reason.startswith("ValueError: no 7 ("), "not the refusal of the dead letter"
    assert finished.snapshot.component("numbers").dead == 1


def test_dead_letter_that_keeps_failing_halts_the_topology() -> None:
    message = "the dead letter of message 7 of spout 'numbers' failed 3 times.*disk full.*reads the"
    with pytest.raises(TopologyFailed, match=message):
        run(topology(RowSpout(), refuses=3))


def test_dead_letter_that_a_death_fails_is_emitted_again_also_in_a_drain() -> None:
    here = Rig(topology(RowSpout(), Retry(attempts=1, dead_letters=True)))
    spout = here.spout("numbers")
    spout.emit(0.0, 1)
    spout.failed(spout.pending.all_roots(), Failure(Cause.FAILED, "picky"), 0.0)
    spout.drain()
    for now in range(3):
        spout.emit(now, 1)
        assert len(records_of(here.sent("letters"))) == 1
        spout.failed(spout.pending.all_roots(), Failure(Cause.ACTOR_DIED, "letters"), now)
        assert not spout.done


# ---- values that cannot be carried --------------------------------------------------------------


class ReprRaises:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "carried"),
    [
        (None, None),
        (2**63, 2**63),
        (2**64, str(2**64)),
        (0.5, 0.5),
        (float("nan"), "nan"),
        (b"\xff", r"b'\xff'"),
        ({1}, "{1}"),
        (["a", {"b": (1, True)}], ["a", {"b": (1, True)}]),
        ({1: 2}, "{1: 2}"),
        ([{1}], "[{1}]"),
        (ReprRaises(), "<ReprRaises, whose repr raised RuntimeError>"),
    ],
)
def test_value_that_cannot_be_carried_becomes_its_repr(value: Any, carried: Any) -> None:
    letter = dead_letter("s", value, {"n": value}, Failure(Cause.FAILED), 1, time=0.0)
    assert letter.message_id == carried
    assert letter.record == {"n": carried}
    assert letter.as_text == (() if value is carried or value == carried else ("n",))


def test_value_that_contains_itself_becomes_its_repr() -> None:
    value: list[Any] = []
    value.append(value)
    assert dead_letter("s", value, {}, Failure(Cause.FAILED), 1, time=0.0).message_id == "[[...]]"


# ---- the log ------------------------------------------------------------------------------------


def test_log_has_the_attempt_and_not_the_traceback() -> None:
    here = Rig(topology(RowSpout()))
    spout = here.spout("numbers")
    spout.emit(0.0, 1)
    raised = Failure(Cause.EXCEPTION, "picky", 0, "ValueError: no\nhint", traceback="Traceback …")
    for now, why in enumerate([raised, Failure(Cause.ACTOR_DIED, "picky", 0)]):
        spout.failed(spout.pending.all_roots(), why, now)
        spout.emit(now + 1, 1)
    prefix = "message 0 of spout 'numbers' failed"
    assert spout.replays.notices.take(0.0) == [
        f"{prefix}, attempt 1 of 3: exception in picky[0]: ValueError: no",
        f"{prefix}, and is emitted again: actor died in picky[0]",
    ]


def test_worker_logs_few_failures_and_counts_the_others() -> None:
    graph = topology(RowSpout(), Retry(attempts=9, jitter=0, dead_letters=True)).graph()
    clock = ManualClock()
    worker = Worker(make_plan(graph), 0, 1, np.random.default_rng(0), clock)
    while (wait_s := worker.step()) is not None and not worker.finished:
        clock.advance(min(wait_s, 0.1))
    assert clock.now() > 10, "the back-offs of nine attempts"
    lines = worker.notices()
    worker.close()
    lines += worker.notices()
    assert len(lines) == 5 + 1 + 2, "the last two are 10 s apart"
    assert lines[5] == "2 more failures of spout 'numbers' in picky within 10 s"
    assert worker.notices() == []


def test_small_window_of_the_dead_letter_bolt_does_not_throttle_the_spout() -> None:
    plan = make_plan(replace(topology(RowSpout()).graph(), config=Config(workers=1)), Layout.PACK)
    worker = Worker(plan, 0, 1, np.random.default_rng(0), ManualClock())
    (spout,) = worker._wired.spouts.values()
    channels = {channel.target: channel for channel in spout.output_streams._channels}
    for component, window in (("picky", 5_000), ("letters", 16)):
        (task,) = plan.tasks_of(component)
        channels[task.id].used, channels[task.id].window = True, window
    assert spout.output_streams.window == 5_000
