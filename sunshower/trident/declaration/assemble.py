"""Assembles a batch group from ordinary components: one spout, and bolts.

    $mastercoord-G ─$batch▶ $spoutcoord-S ─$batch▶ the stage of S ─parts, $coord-G▶ further stages
                   ─$commit▶ stages that commit    ─$success▶ stages of spouts, and that publish

Storm: org.apache.storm.trident.topology.TridentTopologyBuilder
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.async_functions import check_call_time
from sunshower.topologies.operators.steps import FunctionOperator
from sunshower.topologies.outputs import DirectStream, Streams
from sunshower.topologies.retry import DEAD_LETTERS, DeadLetter
from sunshower.topologies.sinks import JsonLines
from sunshower.topologies.streams import Stream
from sunshower.topologies.topology import Topology
from sunshower.trident.coordination.attempts import (
    BATCH,
    COMMIT,
    SUCCESS,
    Count,
    Part,
    coordinator_id,
    counts_stream,
    letters_id,
    master_id,
)
from sunshower.trident.coordination.master_batch_coordinator import (
    GroupPlan,
    MasterBatchCoordinator,
)
from sunshower.trident.coordination.phases import phases
from sunshower.trident.coordination.spout_coordinator import SpoutCoordinatorBolt
from sunshower.trident.stages.plan import Group, Stage
from sunshower.trident.tasks.emitter_runner import EmitterRunner
from sunshower.trident.tasks.stage_bolt import StageBolt
from sunshower.trident.tasks.waiting_stage_bolt import WaitingStageBolt


def assemble(topology: Topology, group: Group) -> None:
    """Declare the components of a group. Raises TopologyError for a group without a spout, for
    stages that form a cycle, and for an untracked topology."""
    sources = [stage.source for stage in group.stages if stage.source is not None]
    where = f"topology {topology.id!r}, batch group {group.id!r}"
    if not sources:
        raise TopologyError(f"{where}: it has no spout; begin a stream with one")
    if not topology.config.tracked:
        raise TopologyError(f"{where}: with ackers=0 batches cannot be tracked; remove ackers=0")
    spouts = {source.id: source.spout for source in sources}
    own = {coordinator_id(id) for id in spouts} | {one.id for one in group.stages if not one.leaves}
    plan = GroupPlan(
        group.id,
        spouts,
        group.store,
        group.root,
        max_batches=group.max_batches,
        interval_s=group.interval_s,
        skip=group.skip,
        bolts=frozenset(own),
        ends_windows=frozenset(source.id for source in sources if source.ends_windows),
    )
    master = topology.spout(master_id(group.id), MasterBatchCoordinator(plan), fields=())
    for source in sources:
        place: Any = (source.id, source.spout, group.store, group.root)
        bolt = SpoutCoordinatorBolt(*place, ends_windows=source.ends_windows)
        words = [master.stream(BATCH).global_(), master.stream(SUCCESS).global_()]
        topology.bolt(coordinator_id(source.id), bolt, words, fields=())
    found = phases(group.stages)
    waits = any(stage.waits for stage in group.stages)
    config = topology.config
    timeout_s = None if waits else min(config.message_timeout_s, config.block_max_s)
    for stage in group.stages:
        if stage.leaves:
            continue
        for node in stage.nodes:
            if isinstance(node.operator, FunctionOperator) and node.operator.limits is not None:
                limit_s = topology.config.block_max_s
                check_call_time(node.operator.limits, limit_s, f"{where}, stage {stage.id!r}")
        begin, emitter = stage.source, None
        if begin is not None:
            emitter = EmitterRunner(begin, group.store, group.root, timeout_s, group.interval_s)
        kind = WaitingStageBolt if stage.waits else StageBolt
        executor = kind(group.id, stage, found[stage.id], group.max_batches, emitter)
        topology.bolt(
            stage.id,
            executor,
            (),
            stage.parallelism,
            fields=(),
            streams=_streams(group, stage),
            resources=stage.resources,
        )
    for stage in group.stages:
        _connect(topology, group, stage, master)
    if group.skip.dead_letters is not None:
        letters = [Stream[Any](topology, one.id, DEAD_LETTERS).shuffle() for one in sources]
        topology.bolt(letters_id(group.id), JsonLines(group.skip.dead_letters), letters)


def _streams(group: Group, stage: Stage) -> Streams:
    parts = replace(Schema.of(Part), classes=group.classes)
    found: dict[str, Any] = {one.stream: DirectStream(parts) for one in stage.outputs}
    if any(one.counted for one in stage.outputs):
        found[counts_stream(group.id)] = DirectStream(Count)
    if stage.source is not None and group.skip.dead_letters is not None:
        found[DEAD_LETTERS] = DeadLetter
    return found


def _connect(topology: Topology, group: Group, stage: Stage, master: Stream[Any]) -> None:
    if stage.source is not None:
        Stream[Any](topology, coordinator_id(stage.source.id), BATCH).all().into(stage.id)
    if stage.receives_success:
        master.stream(SUCCESS).all().into(stage.id)
    if stage.commits:
        master.stream(COMMIT).all().into(stage.id)
    for one in stage.inputs:
        Stream[Any](topology, one.stage, one.stream).direct().into(stage.id)
    if stage.leaves:
        return
    for feeder in dict.fromkeys(one.stage for one in stage.inputs):
        Stream[Any](topology, feeder, counts_stream(group.id)).direct().into(stage.id)
