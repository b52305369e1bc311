"""Tests of messages that checkers excuse (restarted spouts, drains), and of outages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sunshower.experiments.checkers import (
    AtLeastOnce,
    AtMostOnce,
    Checker,
    ExactlyOnce,
    NoneTimedOut,
    NoPrematureAck,
    NothingCharged,
    Recovers,
)
from sunshower.experiments.outcome import Model
from sunshower.runtime.events.event_log import What
from tests.experiments.checkers.test_checkers import BROKEN, HALTED, HOLDS, UNKNOWN, ask, with_fault
from tests.experiments.scripts import FACTS, SPOUT, TASKS, Script, root


def test_messages_that_a_next_tuple_spout_had_pending_when_it_died_are_excused() -> None:
    manual = replace(FACTS, counted=frozenset())
    script = with_fault().emitted(1)
    assert ask(AtLeastOnce(), script, manual).verdict is BROKEN
    script.add(What.STARTED, values=[SPOUT], detail=(0, 2))
    finding = ask(AtLeastOnce(), script.emitted(0, 1, 2).completed(0, 1, 2), manual)
    assert finding.verdict is HOLDS
    assert finding.figures["left_behind"] == 1
    script.emitted(5, incarnation=2)
    assert ask(AtLeastOnce(), script, manual).verdict is BROKEN


def test_the_death_of_a_worker_that_a_spout_has_left_excuses_nothing() -> None:
    manual = replace(FACTS, counted=frozenset())
    script = Script().add(What.STARTED, values=[SPOUT], detail=(0, 1)).whole(0).fault("rebalance")
    script.add(What.STARTED, detail=(0, 2)).add(What.STARTED, values=[SPOUT], detail=(1, 2))
    script.emitted(1, incarnation=2).fault("kill relay[0]").add(What.STARTED, detail=(0, 3))
    assert ask(AtLeastOnce(), script, manual).verdict is BROKEN
    script.add(What.STARTED, values=[SPOUT], detail=(1, 3)).completed(0)
    finding = ask(AtLeastOnce(), script, manual)
    assert (finding.verdict, finding.figures["left_behind"]) == (HOLDS, 1)


def test_messages_that_a_log_spout_had_pending_when_it_died_are_not_excused() -> None:
    log = replace(FACTS, counted=frozenset(), logs=frozenset({SPOUT}))
    script = with_fault().emitted(1).add(What.STARTED, detail=(0, 2))
    script.emitted(2, 1, 2).completed(2, 1, 2)  # the new incarnation skips message 1
    assert ask(AtLeastOnce(), script, log).verdict is BROKEN
    drained = ask(AtLeastOnce(), script, replace(log, drained=True))
    assert (drained.verdict, drained.figures["left_behind"]) == (HOLDS, 1)
    assert ask(AtLeastOnce(), script.emitted(1, 1, 2).completed(1, 1, 2), log).verdict is HOLDS


def test_a_message_of_a_partition_that_moves_may_be_completed_by_another_task() -> None:
    other, number = 4, 1 << 48 | 7
    tasks = {**TASKS, other: "numbers[1]"}
    log = replace(
        FACTS, tasks=tasks, spouts=(SPOUT, other), counted=frozenset(), logs=frozenset({1, other})
    )
    script = with_fault().add(What.EMITTED, SPOUT, [root(1)], [number], [1])
    script.add(What.FAILED, SPOUT, [root(1)], [number], [1], ["rebalanced"])
    script.add(What.EMITTED, other, [root(2)], [number], [1])
    assert ask(AtLeastOnce(), script, log).verdict is BROKEN
    script.add(What.COMPLETED, other, [root(2)], [number], [1])
    assert ask(AtLeastOnce(), script, log).verdict is HOLDS
    elsewhere = replace(log, tasks={**tasks, other: "others[0]"})
    assert ask(AtLeastOnce(), script, elsewhere).verdict is BROKEN


def test_failures_of_a_spout_that_replays_by_itself_are_excused() -> None:
    script = with_fault().emitted(1).failed(1).whole(2)
    assert ask(AtLeastOnce(), script).verdict is BROKEN
    facts = replace(FACTS, self_replaying=frozenset({SPOUT}))
    assert ask(AtLeastOnce(), script, facts).verdict is HOLDS


@pytest.mark.parametrize("checker", [NoPrematureAck(), NoneTimedOut(), Recovers()])
def test_without_tracking_the_checkers_of_trees_are_unknown(checker: Checker) -> None:
    script = with_fault().emitted(1).wrote(1)
    finding = ask(checker, script.completed(1).wrote(1), replace(FACTS, tracked=False))
    assert finding.verdict is UNKNOWN
    assert "nothing is tracked (ackers=0): no tree was ever followed" in finding.reasons


def test_recovery_does_not_wait_for_messages_lost_with_their_spout() -> None:
    manual = replace(FACTS, counted=frozenset())
    script = Script().emitted(1).fault("kill numbers[0]")
    script.add(What.STARTED, values=[SPOUT], detail=(0, 2)).emitted(2, 1, 2).completed(2, 1, 2)
    assert ask(Recovers(), script, manual).verdict is HOLDS
    assert ask(Recovers(), script, FACTS).verdict is BROKEN


def test_after_a_drain_only_emitted_messages_must_be_written_once() -> None:
    drained = replace(FACTS, total=3, model=Model(3, 1, written=True), drained=True)
    script = with_fault().whole(1)
    assert ask(ExactlyOnce(), script, drained).verdict is HOLDS
    assert ask(ExactlyOnce(), script, replace(drained, drained=False)).verdict is BROKEN
    assert ask(ExactlyOnce(), script.emitted(2).completed(2), drained).verdict is BROKEN


def test_a_message_id_that_a_spout_emits_again_counts_as_emitted_twice() -> None:
    script = with_fault().add(What.EMITTED, SPOUT, [5, 6], [2, 3], [1, 1], detail=[("a", 1), "b"])
    script.add(What.EMITTED, SPOUT, [7], [4], [1], detail=["c"]).whole(5)
    assert ask(AtMostOnce(), script).verdict is HOLDS
    script.add(What.EMITTED, SPOUT, [8], [6], [1], detail=[("a", 1)])
    finding = ask(AtMostOnce(), script)
    assert finding.reasons == ("2 messages were emitted more than once",)


def test_outages_charge_no_attempts() -> None:
    script = with_fault().emitted(1).failed(1, cause="unavailable").emitted(1, 2)
    script.failed(1, cause="actor died").whole(1, 3)
    assert ask(NothingCharged(), script).verdict is HOLDS
    script.emitted(2).failed(2, cause="exception").whole(2, 2)
    finding = ask(NothingCharged(), script)
    assert finding.verdict is BROKEN
    assert finding.reasons == ("1 failures with the cause 'exception'",)
    assert finding.evidence[0] == "numbers[0], message 2"
    assert ask(NothingCharged(poison=frozenset({2})), script).verdict is HOLDS
    assert ask(NothingCharged(), script, HALTED).verdict is BROKEN
    assert ask(NothingCharged(), script.fault("errors in relay for 1 s")).verdict is UNKNOWN
