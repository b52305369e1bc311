"""A progress deadline: a tree that makes progress stays open, up to a maximum after its emit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sunshower import Bolt, Cause, Context, Number, Topology
from sunshower.config import Config
from sunshower.errors import ConfigError
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.tracking.ids import U64
from tests.runtime.network import Network
from tests.runtime.rig import Rig
from tests.runtime.spouts.test_spout_task import Numbers, sink
from tests.runtime.test_under_load import Watch, Watched, every_layout
from tests.seeds import seeds


def rig(*numbers: int) -> Any:
    """A spout with a timeout of 30 s, at most 70 s in all, that has emitted `numbers` at 0."""
    topology = Topology("t", ackers=1, message_timeout_s=30, message_timeout_max_s=70)
    topology.spout("numbers", Numbers(*numbers)).shuffle().bolt("next", sink)
    here = Rig(topology)
    here.spout("numbers").emit(0.0, 100)
    here.wired.reports.take()
    return here


def asks(here: Any) -> list[U64]:
    return [roots for report in here.wired.reports.take().values() for roots in report.asks]


def hook_calls(here: Any) -> list[Any]:
    return [(what, number) for what, number, *_ in here.spout("numbers").spout.heard]


# ---- the spout task -----------------------------------------------------------------------------


def test_spout_asks_about_an_overdue_tree_and_keeps_it_if_it_made_progress() -> None:
    here = rig(5)
    spout = here.spout("numbers")
    spout.look(30.0)
    (roots,) = asks(here)
    assert roots.tolist() == spout.pending.all_roots().tolist()
    assert not hook_calls(here)
    spout.heard_of(roots, np.array([10.0]), 30.5)
    spout.look(31.0)  # the grace is over, and nothing is due
    assert spout.next_look_s == 50.5, "30 s after the last report at 20.5"
    spout.look(50.5)
    assert len(asks(here)) == 1
    assert not hook_calls(here)


def test_of_many_answers_about_a_tree_the_last_one_counts() -> None:
    """An acker that was away answers at once what it was asked again and again."""
    here = rig(5, 6)
    spout = here.spout("numbers")
    spout.look(30.0)
    (roots,) = asks(here)
    first, second = roots.tolist()
    answers = np.array([first, second, first, second, first], np.uint64)
    spout.heard_of(answers, np.array([40.0, 40.0, 30.0, 45.0, 10.0]), 30.5)
    assert hook_calls(here) == [("fail", 1)]
    assert spout.pending.all_roots().tolist() == [first]
    spout.look(31.0)  # the grace is over
    assert spout.next_look_s == 50.5, "30 s after the last report at 20.5"


def test_tree_without_progress_fails_when_the_answer_arrives() -> None:
    here = rig(5, 6)
    spout = here.spout("numbers")
    spout.look(30.0)
    (roots,) = asks(here)
    spout.heard_of(roots, np.array([30.0, np.inf]), 30.1)
    assert hook_calls(here) == [("fail", 0), ("fail", 1)]
    assert "no progress within 30 s" in spout.spout.heard[0][2]


def test_question_that_is_not_answered_is_asked_again_until_the_maximum() -> None:
    here = rig(5)
    spout = here.spout("numbers")
    spout.look(30.0)
    (first,) = asks(here)
    assert spout.next_look_s == 31.0
    spout.look(30.9)
    assert not asks(here)
    for now in np.arange(31.0, 70.0):
        spout.look(now)
        (again,) = asks(here)
        assert again.tolist() == first.tolist()
    assert not hook_calls(here)
    spout.look(70.0)
    assert not asks(here)
    assert hook_calls(here) == [("fail", 0)]
    assert spout.spout.heard[0][2].startswith("timeout: ")


def test_lost_answer_only_delays_the_decision() -> None:
    here = rig(5)
    spout = here.spout("numbers")
    spout.look(30.0)
    spout.look(31.0)  # the answer to the first question is lost
    _, roots = asks(here)
    spout.heard_of(roots, np.array([2.0]), 31.2)
    spout.look(32.0)  # the grace is over, and nothing is due
    assert not asks(here)
    assert not hook_calls(here)
    assert spout.next_look_s == pytest.approx(59.2), "30 s after the last report at 29.2"
    spout.look(59.2)
    (roots,) = asks(here)
    spout.heard_of(roots, np.array([30.0]), 59.4)
    assert hook_calls(here) == [("fail", 0)], "the last report is 30 s old"


def test_tree_that_makes_progress_fails_at_the_maximum() -> None:
    here = rig(5)
    spout = here.spout("numbers")
    for now in (30.0, 60.0):
        spout.look(now)
        (roots,) = asks(here)
        spout.heard_of(roots, np.array([0.0]), now)
    spout.look(69.9)
    assert not hook_calls(here)
    spout.look(70.0)
    assert not asks(here), "no answer could extend its deadline"
    assert hook_calls(here) == [("fail", 0)]


def test_an_outage_counts_neither_for_the_deadline_nor_as_time_without_progress() -> None:
    here = rig(5)
    spout = here.spout("numbers")
    spout.deadlines.hold(True, 10.0)
    spout.deadlines.hold(False, 610.0)
    spout.look(630.0)  # its 30 s are over only now
    (roots,) = asks(here)
    spout.heard_of(roots, np.array([620.0]), 630.0)  # the last report was at 10.0
    spout.look(639.9)
    assert not asks(here), "silent for less than 30 s, without the outage"
    spout.look(640.1)
    (roots,) = asks(here)
    spout.heard_of(roots, np.array([np.inf]), 640.2)
    assert hook_calls(here) == [("fail", 0)]


def test_outages_do_not_count_for_the_maximum() -> None:
    here = rig(5)
    spout = here.spout("numbers")
    for from_s in (10.0, 620.0, 1_230.0):
        spout.deadlines.hold(True, from_s)
        spout.deadlines.hold(False, from_s + 600)
    spout.look(1_830.1)  # 30 s without the outages
    (roots,) = asks(here)
    spout.heard_of(roots, np.array([0.0]), 1_830.1)
    spout.look(1_860.2)
    (roots,) = asks(here)
    assert not hook_calls(here)
    spout.look(1_870.1)  # 70 s
    assert hook_calls(here) == [("fail", 0)]


def test_late_answer_changes_nothing() -> None:
    here = rig(5)
    spout = here.spout("numbers")
    spout.look(30.0)
    (roots,) = asks(here)
    spout.postpone(roots, 30.2)
    spout.heard_of(roots, np.array([np.inf]), 30.4)
    assert not hook_calls(here), "a bolt has asked for more time meanwhile"
    assert spout.next_look_s == pytest.approx(31.0)
    spout.complete(roots, 30.5)
    spout.heard_of(roots, np.array([np.inf]), 30.6)
    assert hook_calls(here) == [("ack", 0)]


def test_postponed_deadline_may_be_later_than_the_maximum() -> None:
    here = rig(5)
    spout = here.spout("numbers")
    spout.postpone(spout.pending.all_roots(), 60.0)
    spout.look(89.9)
    assert not hook_calls(here)


def test_maximum_below_the_timeout_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"message_timeout_max_s is 20, shorter than .* 30"):
        Config(message_timeout_s=30, message_timeout_max_s=20)


# ---- in a topology ------------------------------------------------------------------------------


class Slowly(Bolt[Number, Number]):
    """Each record takes 20 s."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, record: Number) -> Iterator[Number]:
        self.clock.sleep(20.0)
        self.watch.done += 1
        yield record


def slow_chain(watch: Watch, layout: Layout, seed: int, longest_s: float | None) -> Network:
    """One number through three bolts of 20 s each, with a timeout of 30 s."""
    topology = Topology(
        "chain",
        workers=2,
        ackers=1,
        message_timeout_s=30,
        message_timeout_max_s=longest_s,
    )
    stream = topology.spout("numbers", Watched(watch, 1))
    for name in ("one", "two", "three"):
        stream = stream.shuffle().bolt(name, Slowly(watch))
    return Network(make_plan(topology.graph(), layout), seed)


@every_layout
@seeds(5)
def test_slow_tree_that_makes_progress_does_not_time_out(layout: Layout, seed: int) -> None:
    watch = Watch()
    slow_chain(watch, layout, seed, 200).run()
    assert not watch.failures, f"seed {seed}: {watch.failures}"
    assert watch.done == 3


@pytest.mark.parametrize("longest_s", [None, 40])
def test_slow_tree_times_out_without_progress_deadline_and_at_the_maximum(
    longest_s: float | None,
) -> None:
    watch = Watch()
    net = slow_chain(watch, Layout.ISOLATE, 0, longest_s)
    net.until(lambda: bool(watch.failures))
    assert watch.failures[0].cause is Cause.TIMEOUT
