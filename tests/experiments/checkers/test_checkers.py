"""Tests of the checkers on small histories that give HOLDS, BROKEN or UNKNOWN."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sunshower.experiments.checkers import (
    AtLeastOnce,
    AtMostOnce,
    BoundedPending,
    Checker,
    CheckResult,
    Duplicates,
    EachEdgeOnce,
    ExactlyOnce,
    Liveness,
    NoneTimedOut,
    NoPrematureAck,
    PerKeyOrder,
    Recovers,
    judge,
    recoveries,
)
from sunshower.experiments.event_history import History
from sunshower.experiments.outcome import Ending, Facts, Finding, Model, Verdict
from sunshower.runtime.events.event_log import What
from tests.experiments.scripts import FACTS, RELAY, SINK, SPOUT, Script, root

HOLDS, BROKEN, UNKNOWN = Verdict.HOLDS, Verdict.BROKEN, Verdict.UNKNOWN
NUMBERED = replace(FACTS, total=3, model=Model(3, 1, written=True))
STUCK = replace(FACTS, ending=Ending.STUCK, error="it is not finished after 9 s")
HALTED = replace(FACTS, ending=Ending.HALTED, error="message 1 failed 5 times")


def ask(checker: Checker, script: Script, facts: Facts = FACTS) -> Finding:
    (finding,) = judge([checker], script.history(), facts)
    return finding


def with_fault() -> Script:
    """The beginning of most scripts: one message is complete, then a process is killed."""
    return Script().whole(0).fault()


# ---- at least once ------------------------------------------------------------------------------


def test_at_least_once_holds_when_every_message_was_completed() -> None:
    script = with_fault().whole(1).emitted(2).failed(2).whole(2, attempt=2)
    assert ask(AtLeastOnce(), script, NUMBERED).verdict is HOLDS


def test_at_least_once_is_broken_by_a_message_that_was_never_completed() -> None:
    script = with_fault().emitted(1).sent(1, 77, SPOUT, RELAY).delivered(1, 77, RELAY).whole(2)
    finding = ask(AtLeastOnce(), script)
    assert finding.verdict is BROKEN
    assert finding.reasons == ("1 messages were emitted and never completed",)
    assert finding.evidence[0] == "numbers[0], message 1"
    assert finding.evidence[-1].startswith("    last: relay[0], delivered ")
    assert finding.figures["lost"] == 1


def test_at_least_once_is_broken_by_a_number_that_was_left_out() -> None:
    finding = ask(AtLeastOnce(), with_fault().whole(1).whole(3))
    assert finding.verdict is BROKEN
    assert finding.reasons == ("numbers[0] has left out 1 messages, such as 2",)


def test_at_least_once_is_broken_by_a_source_that_ends_too_early() -> None:
    finding = ask(AtLeastOnce(), with_fault().whole(1), NUMBERED)
    assert finding.verdict is BROKEN
    assert finding.reasons[0] == "of 3 messages of the source 2 were emitted"
    drained = replace(NUMBERED, drained=True)
    assert ask(AtLeastOnce(), with_fault().whole(1), drained).verdict is HOLDS


def test_at_least_once_is_broken_by_an_item_that_no_sink_has_written() -> None:
    script = with_fault().whole(1).emitted(2).completed(2)
    finding = ask(AtLeastOnce(), script, NUMBERED)
    assert finding.reasons == ("1 items were never written, such as 2",)
    assert ask(AtLeastOnce(written=False), script, NUMBERED).verdict is HOLDS
    script.add(What.DEAD, SPOUT, values=[2])
    assert ask(AtLeastOnce(), script, NUMBERED).verdict is HOLDS  # it is a dead letter


@pytest.mark.parametrize("facts", [STUCK, HALTED])
def test_at_least_once_is_unknown_of_a_run_that_did_not_finish(facts: Facts) -> None:
    finding = ask(AtLeastOnce(), with_fault().emitted(1), facts)
    assert finding.verdict is UNKNOWN
    assert finding.reasons[-1] == f"the run did not finish: {facts.error}"
    assert finding.evidence  # it names the task that had the message last


def test_a_message_completed_by_an_earlier_incarnation_may_be_left_open_by_a_later_one() -> None:
    script = with_fault().whole(1).emitted(1, incarnation=2).whole(2)
    assert ask(AtLeastOnce(), script).verdict is HOLDS


def test_without_tracking_only_writes_of_sinks_count() -> None:
    untracked = replace(NUMBERED, tracked=False)
    script = Script().wrote(0).fault().wrote(1)
    finding = ask(AtLeastOnce(), script, untracked)
    assert (finding.verdict, finding.reasons[0]) == (
        BROKEN,
        "1 items were never written, such as 2",
    )
    assert ask(AtLeastOnce(), script.wrote(2), untracked).verdict is HOLDS
    assert ask(AtLeastOnce(), script, replace(untracked, model=None)).verdict is UNKNOWN


# ---- at most once, exactly once, duplicates -----------------------------------------------------


def test_at_most_once() -> None:
    assert ask(AtMostOnce(), with_fault().whole(2)).verdict is HOLDS
    again = with_fault().emitted(1).failed(1).whole(1, attempt=2)
    assert ask(AtMostOnce(), again).reasons == ("1 messages were emitted more than once",)
    twice = with_fault().wrote(5).wrote(5).completed(1)
    assert ask(AtMostOnce(), twice).reasons == ("1 keys were written twice, such as 5",)
    silent = replace(FACTS, tracked=False)
    assert ask(AtMostOnce(), with_fault().add(What.ACKED, RELAY), silent).verdict is UNKNOWN


def test_exactly_once_of_a_numbered_source() -> None:
    script = with_fault().whole(1)
    assert ask(ExactlyOnce(), script, NUMBERED).evidence == ("2 is None, not 1",)
    gone = replace(NUMBERED, ending=Ending.GONE)
    assert ask(ExactlyOnce(), script, gone).verdict is UNKNOWN
    script.whole(2)
    assert ask(ExactlyOnce(), script, NUMBERED).verdict is HOLDS
    finding = ask(ExactlyOnce(), script.wrote(2).completed(2), NUMBERED)
    assert finding.verdict is BROKEN
    assert finding.reasons == ("1 keys are not as in the model, such as: 2 is 2, not 1",)
    assert ask(ExactlyOnce(), script, gone).verdict is BROKEN  # later events cannot mend that
    assert ask(ExactlyOnce(), script).verdict is UNKNOWN  # there is no model


def test_exactly_once_of_values_takes_the_last() -> None:
    script = Script().fault().wrote("rain", 1).wrote("sun", 1).wrote("rain", 2).completed(1)
    assert ask(ExactlyOnce({"rain": 2, "sun": 1}), script).verdict is HOLDS
    assert ask(ExactlyOnce({"rain": 1, "sun": 1}), script).verdict is BROKEN
    finding = ask(ExactlyOnce({"rain": 2}), script)
    assert finding.evidence == ("'sun' is there, and not in the model",)


def test_duplicates_are_counted_and_never_wrong() -> None:
    finding = ask(Duplicates(), with_fault().whole(1).wrote(1).wrote(1).completed(1))
    assert (finding.verdict, finding.figures) == (HOLDS, {"duplicates": 2})
    silent = Script().emitted(0).completed(0).fault().completed(0, 2)
    assert ask(Duplicates(), silent).figures == {"duplicates": 1}
    assert ask(Duplicates(), Script().whole(1).wrote(1)).verdict is UNKNOWN


# ---- no premature ack ---------------------------------------------------------------------------


def test_no_premature_ack_holds_when_all_edges_were_acked_before() -> None:
    finding = ask(NoPrematureAck(), with_fault().whole(1))
    assert finding.verdict is HOLDS
    assert finding.figures == {"trees": 2, "edges": 4}


def test_a_tree_that_is_complete_before_a_child_is_acked_is_broken() -> None:
    script = with_fault().emitted(1).sent(1, 7, SPOUT, RELAY).delivered(1, 7, RELAY)
    script.sent(1, 8, RELAY, SINK).acked(1, 7, RELAY).completed(1)
    late = script.delivered(1, 8, SINK).acked(1, 8, SINK)
    finding = ask(NoPrematureAck(), late)
    assert finding.verdict is BROKEN
    assert finding.reasons == ("1 of 2 trees were complete before all their edges were acked",)
    assert [line.split(": ")[0] for line in finding.evidence] == [
        "numbers[0], message 1",
        f"  attempt 1, root {root(1):016x}",
        "    0000000000000007 numbers[0] → relay[0]",
        "      0000000000000008 relay[0] → sink[0]",
    ]


def test_a_tree_with_an_edge_that_was_never_acked_is_broken() -> None:
    script = with_fault().emitted(1).sent(1, 7, SPOUT, RELAY).completed(1)
    assert ask(NoPrematureAck(), script).verdict is BROKEN


def test_a_tree_that_is_complete_though_a_bolt_refused_is_broken() -> None:
    script = with_fault().emitted(1).sent(1, 7, SPOUT, RELAY).acked(1, 7, RELAY).refused(1, 9, SINK)
    assert ask(NoPrematureAck(), script.completed(1)).verdict is BROKEN


def test_trees_that_share_a_record_share_its_edge() -> None:
    script = with_fault().emitted(1).emitted(2).sent(1, 7, SPOUT, RELAY).sent(2, 7, SPOUT, RELAY)
    script.acked(1, 7, RELAY).completed(1).completed(2)
    finding = ask(NoPrematureAck(), script)
    assert finding.reasons == ("1 of 3 trees were complete before all their edges were acked",)


def test_only_trees_of_the_sample_are_judged() -> None:
    script = with_fault().emitted(1).completed(1)
    script.entries = [e for e in script.entries if e.what.name in ("EMITTED", "COMPLETED", "BEGUN")]
    sampled = replace(FACTS, sample=2)
    finding = ask(NoPrematureAck(), script, sampled)
    assert (finding.verdict, finding.reasons) == (
        UNKNOWN,
        ("no tree of those completed is in the sample",),
    )
    assert ask(NoPrematureAck(), with_fault().whole(2), sampled).figures == {"trees": 2, "edges": 4}


def test_each_edge_once() -> None:
    assert ask(EachEdgeOnce(), with_fault().whole(1)).verdict is HOLDS
    assert ask(EachEdgeOnce(), Script().emitted(1).fault().completed(1)).verdict is UNKNOWN
    for script, message in (
        (
            with_fault().emitted(1).delivered(1, 7, RELAY).delivered(1, 7, RELAY),
            "reached a bolt twice",
        ),
        (
            with_fault().emitted(1).delivered(1, 7, RELAY).acked(1, 7, RELAY).acked(1, 7, RELAY),
            "were acked twice",
        ),
        (with_fault().emitted(1).acked(1, 7, RELAY), "were acked before they reached the bolt"),
        (
            with_fault().emitted(1).sent(1, 7, SPOUT, RELAY).delivered(1, 7, SINK),
            "reached a bolt that they were not sent to",
        ),
    ):
        finding = ask(EachEdgeOnce(), script)
        assert (finding.verdict, finding.reasons) == (BROKEN, (f"1 edges {message}",))
        assert finding.evidence[0] == "numbers[0], message 1"


# ---- order and pressure -------------------------------------------------------------------------


def test_per_key_order() -> None:
    script = with_fault().wrote("a", 1).wrote("b", 5).wrote("a", 2).wrote("a", 1).completed(1)
    assert ask(PerKeyOrder(), script).verdict is HOLDS  # an earlier value may be repeated
    finding = ask(PerKeyOrder(), script.wrote("b", 4))
    assert finding.verdict is BROKEN
    assert finding.evidence[0].endswith("'b' got 4 after 5")
    assert ask(PerKeyOrder(), Script().emitted(1).fault().completed(1)).verdict is UNKNOWN


def test_bounded_pending() -> None:
    script = with_fault().emitted(1).emitted(2).failed(1).emitted(1, 2).completed(2).completed(1, 2)
    assert ask(BoundedPending(2), script).verdict is HOLDS
    finding = ask(BoundedPending(1), script)
    assert finding.verdict is BROKEN
    assert finding.reasons == ("numbers[0] had 2 trees open, and 1 are allowed",)
    assert ask(BoundedPending(), script, replace(FACTS, pending_max=1)).verdict is BROKEN
    assert ask(BoundedPending(2), Script().fault()).verdict is UNKNOWN


def test_trees_left_open_by_a_dead_spout_do_not_count_for_its_successor() -> None:
    script = with_fault().emitted(1).emitted(2).emitted(1, 1, 2).emitted(2, 1, 2).completed(1, 1, 2)
    assert ask(BoundedPending(2), script).verdict is HOLDS


# ---- recovery -----------------------------------------------------------------------------------


def test_liveness() -> None:
    script = with_fault().wait(2).whole(1)
    finding = ask(Liveness(within_s=3), script)
    assert finding.verdict is HOLDS
    assert finding.figures["settled_s"] == pytest.approx(2, abs=0.02)
    assert ask(Liveness(within_s=1), script).verdict is BROKEN
    assert ask(Liveness(), with_fault().emitted(1), STUCK).verdict is BROKEN
    assert ask(Liveness(), with_fault(), HALTED).verdict is UNKNOWN
    assert ask(Liveness(), Script().whole(0)).verdict is UNKNOWN
    early = ask(
        Liveness(), Script().add(What.BEGUN, detail="x").whole(0).add(What.ENDED, detail="x")
    )
    assert early.reasons == ("all was completed while the last fault was on",)


def test_recovery_is_the_time_until_all_that_was_open_is_completed() -> None:
    script = Script().emitted(1).emitted(2).fault("pause a", for_s=1).wait(1).completed(1)
    script.emitted(3).wait(5).completed(3).fault("kill b").wait(2).completed(2).wait(1)
    assert ask(Recovers(within_s=9), script).verdict is HOLDS
    finding = ask(Recovers(within_s=3), script)
    assert finding.verdict is BROKEN
    assert finding.reasons[0].startswith("after pause a it took 8.00")
    assert finding.figures["worst_s"] == pytest.approx(8, abs=0.02)
    script.emitted(4).fault("kill c").emitted(5).completed(5)
    assert ask(Recovers(within_s=9), script).reasons == ("after kill c it never recovered",)
    assert ask(Recovers(within_s=9), script, HALTED).verdict is UNKNOWN
    assert ask(Recovers(), Script().whole(0)).verdict is UNKNOWN


def recovery_times(script: Script) -> list[float | None]:
    recovered = recoveries(script.history())
    times = [
        recovery.recovered_s and recovery.recovered_s - recovery.ended_s for recovery in recovered
    ]
    return [None if time_s is None else round(time_s, 1) for time_s in times]


def test_a_kill_affects_messages_emitted_before_the_restart() -> None:
    script = Script().fault("kill a").wait(1).emitted(1).wait(1).add(What.STARTED, detail=(0, 2))
    assert recovery_times(script.wait(1).completed(1).wait(1).whole(2)) == [3.0]


def test_a_fault_affects_messages_that_fail_later() -> None:
    script = Script().emitted(1).fault("kill a").wait(1).completed(1).emitted(2).wait(1)
    script.failed(2).emitted(2, 2).wait(1).completed(2, 2)
    assert recovery_times(script) == [3.0]
    script.emitted(3).failed(3, cause="exception").emitted(3, 2).wait(1).completed(3, 2)
    assert recovery_times(script) == [3.0]  # the failure came from user code, not from the fault
    script.fault("kill b").emitted(4).failed(4).emitted(4, 2).wait(2).completed(4, 2)
    assert recovery_times(script) == [3.0, 2.0]


def test_none_timed_out() -> None:
    facts = replace(FACTS, timeouts_s={SPOUT: 30.0})
    script = with_fault().emitted(1).wait(12).failed(1, cause="timeout").whole(1, 2)  # by `expire`
    script.emitted(2).wait(40).failed(2, cause="actor died").whole(2, 2)
    assert ask(NoneTimedOut(), script, facts).verdict is HOLDS
    finding = ask(NoneTimedOut(), script.emitted(3).wait(29.9).failed(3, cause="timeout"), facts)
    assert finding.verdict is BROKEN
    assert finding.evidence[0] == "numbers[0], message 3"
    assert ask(NoneTimedOut(), Script().whole(0), facts).verdict is UNKNOWN


# ---- runs that prove nothing --------------------------------------------------------------------


def test_a_run_without_faults_is_unknown() -> None:
    finding = ask(AtLeastOnce(), Script().whole(0))
    assert finding.verdict is UNKNOWN
    assert finding.reasons[0].startswith("no fault took effect")
    after = Script().whole(0).fault()
    assert (
        ask(AtLeastOnce(), after).reasons[0]
        == "no fault took effect: everything was done before the first fault"
    )


def test_a_harmless_step_is_no_fault() -> None:
    before = Script().fault().whole(0)
    assert ask(AtLeastOnce(), before).verdict is HOLDS
    (fault,) = before.history().faults
    facts = replace(FACTS, harmless=frozenset({fault.words}))
    finding = ask(AtLeastOnce(), before, facts)
    assert finding.verdict is UNKNOWN
    assert finding.reasons[0].startswith("no fault took effect: the run was over before")


def test_a_run_without_completions_is_unknown() -> None:
    finding = ask(BoundedPending(5), Script().emitted(0).fault())
    assert finding.reasons[0] == "nothing was completed"


def test_a_history_that_is_cut_never_holds_and_stays_broken() -> None:
    cut = with_fault().whole(1).history(cut="it breaks off at line 9")
    (finding,) = judge([AtLeastOnce()], cut, FACTS)
    assert (finding.verdict, finding.reasons[0]) == (UNKNOWN, "it breaks off at line 9")
    tail = with_fault().emitted(1).emitted(3)  # their completions may be in the missing part
    checkers = [AtLeastOnce(), Recovers(), ExactlyOnce(), Liveness()]
    for finding in judge(checkers, tail.history(cut="it breaks off"), NUMBERED):
        assert finding.verdict is UNKNOWN
    twice = with_fault().whole(1).wrote(1).history(cut="it breaks off")
    (finding,) = judge([ExactlyOnce()], twice, NUMBERED)
    assert finding.reasons == ("1 is there 2 times",)
    worse = (
        with_fault().emitted(1).sent(1, 7, SPOUT, RELAY).completed(1).history(cut="it breaks off")
    )
    (finding,) = judge([NoPrematureAck()], worse, FACTS)
    assert finding.verdict is BROKEN


def test_a_checker_that_raises_is_unknown_and_the_others_run() -> None:
    class Thrower:
        name = "thrower"

        def check(self, history: History, facts: Facts) -> CheckResult:
            raise ZeroDivisionError(f"{len(history)} by {facts.sample}")

    first, second = judge([Thrower(), AtLeastOnce()], with_fault().whole(1).history(), FACTS)
    assert first.verdict is UNKNOWN
    assert first.reasons[0].startswith("the checker itself has failed: ZeroDivisionError: ")
    assert second.verdict is HOLDS


def test_an_empty_history_breaks_no_checker() -> None:
    checkers = [AtLeastOnce(), AtMostOnce(), ExactlyOnce(), Duplicates(), NoPrematureAck()]
    checkers += [
        EachEdgeOnce(),
        PerKeyOrder(),
        BoundedPending(),
        Liveness(),
        Recovers(),
        NoneTimedOut(),
    ]
    for finding in judge(checkers, History([], {}), FACTS):
        assert finding.verdict is UNKNOWN
        assert "failed" not in finding.reasons[0]


def test_roots_without_an_emit_are_accepted() -> None:
    """The history is cut at the beginning: earlier entries of a worker are lost."""
    script = Script().fault().completed(1).acked(2, 9, SINK).failed(3)
    checkers = [AtLeastOnce(), NoPrematureAck(), EachEdgeOnce(), BoundedPending(), Recovers()]
    for finding in judge([*checkers, NoneTimedOut()], script.history(), FACTS):
        assert "failed" not in finding.reasons[0]
    assert np.isinf(script.history().accounts.completed_s).sum() == 0
