"""Plans a group: turns its drafts into stages with numbered nodes, inputs and outputs.

Storm: org.apache.storm.trident.planner.GraphGrouper, TridentTopology.build.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from graphlib import TopologicalSorter
from pathlib import Path

from sunshower.errors import DuplicateComponent, TopologyError
from sunshower.trident.coordination.stored_progress import coordinator_path
from sunshower.trident.declaration.drafts import (
    GroupDraft,
    Made,
    Sent,
    Spring,
    StageDraft,
    Tip,
    origins_of,
)
from sunshower.trident.declaration.store_places import InSqlite
from sunshower.trident.stages.persisting import Persist, Slot
from sunshower.trident.stages.plan import Feed, Group, Input, Node, Output, Skip, Source, Stage
from sunshower.trident.stages.port import publishing
from sunshower.trident.states.counted import CountedIn
from sunshower.trident.states.port import StateKind

Feeds = dict[Tip, list[Feed]]  # within one stage: the readers of each place


def plan_group(draft: GroupDraft) -> Group:
    """The plan that `assemble` builds. Raises DuplicateComponent for names that are used twice."""
    used = [stage for stage in draft.stages if stage.steps or stage.spout is not None]
    order = TopologicalSorter({stage: dict.fromkeys(origins_of(stage)) for stage in used})
    stages = list(order.static_order())
    ids = _ids(used)
    feeds = {stage: _feeds(stage) for stage in stages}
    streams = _streams(feeds, ids)
    file = Path(f"{draft.program.topology.id}.batches.db").absolute()
    group = Group(
        draft.id,
        tuple(_stage(stage, ids, feeds, streams) for stage in stages),
        draft.store or InSqlite(file),
        max_batches=draft.max_batches or 1,
        interval_s=draft.interval_s or 0.0,
        skip=draft.skip or Skip(),
    )
    spouts = [stage.id for stage in group.stages if stage.source is not None]
    counted = CountedIn(group.store, tuple(coordinator_path(group.root, id) for id in spouts))
    for stage in group.stages:
        for node in stage.nodes:
            if (operator := publishing(node.operator)) is not None:
                operator.counted = counted
            if isinstance(node.operator, Persist):
                node.operator.slot.counted = counted
                _check_skip(group, node.operator.slot, draft)
    return group


def _check_skip(group: Group, slot: Slot, draft: GroupDraft) -> None:
    """Raise TopologyError for a state that would keep what a skipped batch has written."""
    kind, aside = slot.factory.kind, group.skip.dead_letters is not None
    if aside and slot.exactly_once and kind is not StateKind.OPAQUE:
        raise TopologyError(
            f"topology {draft.program.topology.id!r}, batches {draft.id!r}: state {slot.name!r} is "
            f"of kind {kind.value}, so what an attempt has written stays, also when the batch is "
            "skipped after all: its rows would count and be dead letters. Take a state of kind "
            "opaque, or leave dead_letters out of Skip"
        )


def _ids(stages: list[StageDraft]) -> dict[StageDraft, str]:
    """Stage ids: the spout's id, the user's name, or the root's id with a number."""
    ids: dict[StageDraft, str] = {}
    numbers: Counter[str] = Counter()
    for stage in stages:
        numbers[stage.root] += 1
        number = numbers[stage.root]
        ids[stage] = stage.name or (stage.root if stage.spout else f"{stage.root}-{number}")
    twice = [id for id, times in Counter(ids.values()).items() if times > 1]
    if twice:
        topology = stages[0].group.program.topology.id
        raise DuplicateComponent(
            f"topology {topology!r}: several stages are called {twice[0]!r}; give them different "
            'names, as in .named("totals")'
        )
    return ids


def _feeds(stage: StageDraft) -> Feeds:
    feeds: Feeds = {}
    for number, step in enumerate(stage.steps):
        for source, tips in enumerate(step.inputs):
            for tip in tips:
                feeds.setdefault(tip, []).append(Feed(number, source))
    return feeds


Streams = dict[tuple[Sent, int], str]  # (what was sent, index of its origin) → stream id


def _streams(feeds: dict[StageDraft, Feeds], ids: dict[StageDraft, str]) -> Streams:
    """A stream for each connection of two stages: `to-<target>`, numbered from the second."""
    streams: Streams = {}
    numbers: Counter[tuple[StageDraft, StageDraft]] = Counter()
    for stage, read in feeds.items():
        for sent in read:
            if isinstance(sent, Sent):
                for index, origin in enumerate(sent.origins):
                    numbers[origin.stage, stage] += 1
                    number = numbers[origin.stage, stage]
                    suffix = "" if number == 1 else f"-{number}"
                    streams[sent, index] = f"to-{ids[stage]}{suffix}"
    return streams


def _stage(
    stage: StageDraft,
    ids: dict[StageDraft, str],
    feeds: dict[StageDraft, Feeds],
    streams: Streams,
) -> Stage:
    own = feeds[stage]
    source = None
    if stage.spout is not None and stage.schema is not None:
        spring = next((tip for tip in own if isinstance(tip, Spring)), None)
        read = tuple(own[spring]) if spring else ()
        source = Source(ids[stage], stage.spout, stage.schema, read)
    return Stage(
        ids[stage],
        stage.parallelism,
        tuple(Node(step.operator, tuple(own.get(step, ()))) for step in stage.steps),
        source,
        tuple(
            Input(ids[origin.stage], streams[sent, index], sent.schema, tuple(own[sent]))
            for sent in own
            if isinstance(sent, Sent)
            for index, origin in enumerate(sent.origins)
        ),
        tuple(
            Output(
                stage.steps.index(origin) if isinstance(origin, Made) else None,
                stream,
                ids[sent.stage],
                origin.schema,
                copy(sent.sharing),
                counted=not sent.stage.leaves,
            )
            for (sent, index), stream in streams.items()
            if (origin := sent.origins[index]).stage is stage
        ),
        leaves=stage.leaves,
    )
