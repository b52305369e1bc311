"""Tests of the evidence: the description of a message's tree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from syrupy.assertion import SnapshotAssertion

from sunshower.experiments.checkers import AtLeastOnce, judge
from sunshower.experiments.event_history import message_keys, tasks_of
from sunshower.experiments.experiment import figures_of
from sunshower.experiments.outcome import Model, tree, trees
from sunshower.runtime.events.event_log import What
from tests.experiments.scripts import FACTS, RELAY, SINK, SPOUT, Script


def key(number: int) -> int:
    return (SPOUT << 44) + number


def test_a_tree_shows_every_attempt_every_edge_and_the_last_task(
    approved: SnapshotAssertion,
) -> None:
    script = Script().emitted(1).sent(1, 7, SPOUT, RELAY).delivered(1, 7, RELAY)
    script.sent(1, 8, RELAY, SINK).acked(1, 7, RELAY).failed(1)
    script.emitted(1, 2).sent(1, 9, SPOUT, RELAY, 2)
    assert tree(script.history(), key(1)) == approved
    refused = Script().emitted(1).sent(1, 7, SPOUT, RELAY).delivered(1, 7, RELAY)
    assert tree(refused.refused(1, 7, RELAY).history(), key(1)) == approved
    late = Script().emitted(1).sent(1, 7, SPOUT, RELAY).completed(1).acked(1, 7, RELAY)
    assert tree(late.history(), key(1)) == approved


def test_trees_outside_the_sample_and_of_unknown_messages_are_described() -> None:
    script = Script().emitted(1).completed(1)
    assert tree(script.history(), key(1))[-1].strip().startswith("nothing is known of its edges")
    assert tree(script.history(), key(5))[-1] == "  it was never emitted"


def test_only_the_first_few_messages_are_described() -> None:
    script = Script()
    for number in range(5):
        script.emitted(number)
    lines = trees(script.history(), [key(number) for number in range(5)])
    assert sum("message" in line for line in lines) == 3
    assert lines[-1] == "… and 2 more"


def test_a_tree_of_many_edges_is_cut_short() -> None:
    script = Script().emitted(1)
    for edge in range(1, 200):
        script.sent(1, edge, SPOUT, RELAY)
    lines = tree(script.history(), key(1))
    assert len(lines) == 61
    assert lines[-1] == "  … and 142 more lines"


def test_the_tree_of_an_item_that_no_sink_has_written_is_described() -> None:
    script = Script().whole(0).fault().emitted(1).completed(1)
    facts = replace(FACTS, total=2, model=Model(2, 1, written=True))
    (finding,) = judge([AtLeastOnce()], script.history(), facts)
    assert finding.evidence[0] == "numbers[0], message 1"


def test_figures_are_counted(approved: SnapshotAssertion) -> None:
    script = Script().whole(0).emitted(1).failed(1, cause="timeout").wait(1).whole(1, attempt=2)
    script.wrote(1).add(What.DEAD, SPOUT, values=[9])
    figures = figures_of(script.history())
    assert figures == approved
    assert "throughput" not in figures_of(Script().emitted(1).history())
    assert message_keys(script.history().rows(What.EMITTED).tasks, 1).tolist() == [key(1)] * 3


def test_messages_of_a_log_are_distinguished_by_task_slot_and_offset() -> None:
    slots, offsets = np.meshgrid([0, 1, 5, (1 << 15) - 1], [0, 70_000, 1 << 25, (1 << 25) + 1])
    numbers = (slots.ravel() << 48) | offsets.ravel()
    keys = [message_keys(np.full(len(numbers), task), numbers) for task in (1, 2)]
    assert len(np.unique(keys)) == 2 * len(numbers)
    assert set(tasks_of(keys[1]).tolist()) == {2}
