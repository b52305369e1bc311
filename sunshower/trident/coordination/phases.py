"""Decides which work of a batch group must wait for the commit phase.

An operator that commits is late, and so is everything that reads what it emits, in its stage and in
later ones. What a stage sends to another is late if any of it comes from a late operator, because
its amount is known only then. If some of it is early, the early amount is sent before, so that the
receiver knows at the start of the commit whether it has all of that. Everything else is early: it
is done in the process phase, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from sunshower.errors import TopologyError
from sunshower.trident.stages.plan import Stage


@dataclass(frozen=True)
class Phases:
    """The late nodes, inputs and targets of one stage."""

    late_nodes: frozenset[int]
    late_inputs: frozenset[str]  # ids of stages
    late_targets: frozenset[str]
    mixed_inputs: frozenset[str] = frozenset()  # late inputs that also send early rows
    mixed_targets: frozenset[str] = frozenset()

    def is_late(self, stage: Stage) -> bool:
        """Whether the stage works in the commit phase."""
        return bool(stage.commits or self.late_nodes or self.late_inputs)


def phases(stages: Sequence[Stage]) -> dict[str, Phases]:
    """The phases of each stage, by id. Raises TopologyError for stages that form a cycle."""
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
    for index, node in enumerate(stage.nodes):  # nodes come after those they read
        if node.operator.commits:
            late.add(index)
        if index in late:
            late.update(feed.node for feed in node.feeds)
    return frozenset(late)
