"""Which work of a batch group waits for the commit phase: a walk over its plan.

An operator that commits is late, and so is all that reads what it emits, in its stage and beyond.
What a stage sends to another is late if any of it comes from a late operator: the receiver learns
how much it was only then. If some of it is early it learns of that before, so that it knows whether
it still has all of it when the commit begins. All else is early: it is done in the process phase,
in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from sunshower.errors import TopologyError
from sunshower.trident.stages.plan import Stage


@dataclass(frozen=True)
class Phases:
    """Of one stage: which of its nodes are late, and what comes and goes late."""

    late_nodes: frozenset[int]
    late_inputs: frozenset[str]  # ids of stages
    late_targets: frozenset[str]
    mixed_inputs: frozenset[str] = frozenset()  # those of the late ones that send some rows early
    mixed_targets: frozenset[str] = frozenset()

    def is_late(self, stage: Stage) -> bool:
        """Whether the stage has anything to do in the commit phase."""
        return bool(stage.commits or self.late_nodes or self.late_inputs)


def phases(stages: Sequence[Stage]) -> dict[str, Phases]:
    """Of each stage, by id. Raises TopologyError for stages that feed each other in a circle."""
    by_id = {stage.id: stage for stage in stages}
    feeders = {stage.id: {one.stage for one in stage.inputs} for stage in stages}
    try:
        order = list(TopologicalSorter(feeders).static_order())
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise TopologyError(f"the stages of a batch group feed each other: {circle}") from None
    found: dict[str, Phases] = {}
    for id in order:
        stage = by_id[id]
        late_inputs = frozenset(one for one in feeders[id] if id in found[one].late_targets)
        late = _late_nodes(stage, late_inputs)
        targets = frozenset(one.target for one in stage.outputs if one.node in late)
        early = frozenset(one.target for one in stage.outputs if one.node not in late)
        mixed = frozenset(one for one in late_inputs if id in found[one].mixed_targets)
        found[id] = Phases(late, late_inputs, targets, mixed, targets & early)
    return found


def _late_nodes(stage: Stage, late_inputs: frozenset[str]) -> frozenset[int]:
    late = {feed.node for one in stage.inputs if one.stage in late_inputs for feed in one.feeds}
    for index, node in enumerate(stage.nodes):  # each comes after those that it reads
        if node.operator.commits:
            late.add(index)
        if index in late:
            late.update(feed.node for feed in node.feeds)
    return frozenset(late)
