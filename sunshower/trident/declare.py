"""The first word of a stream program: `batches` puts a batch spout on a topology."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sunshower.errors import ConfigError, DuplicateComponent, TopologyError
from sunshower.stores.tree import Tree
from sunshower.topologies.outputs import check_id
from sunshower.topologies.signatures import name_of
from sunshower.topologies.topology import Topology
from sunshower.trident.declaring import columns_schema
from sunshower.trident.drafts import GroupDraft, Program, Spring, StageDraft
from sunshower.trident.planner import plan_group
from sunshower.trident.spouts.port import TridentSpout
from sunshower.trident.stages.plan import Skip
from sunshower.trident.streams import BatchStream


class StreamProgram(Program):
    """The guest that declares spouts and bolts for all groups."""

    def finish(self) -> None:
        """See topologies.topology.Guest."""
        from sunshower.trident.assemble import assemble

        self.built = True
        for group in self.groups.values():
            assemble(self.topology, plan_group(group))


def batches(
    topology: Topology,
    id: str,
    spout: TridentSpout,
    *,
    parallelism: int = 1,
    store: Callable[[], Tree] | None = None,
    max_batches: int | None = None,
    interval_s: float | None = None,
    skip: Skip | None = None,
    group: str | None = None,
) -> BatchStream[Any]:
    """The stream of a batch spout. `id` is its name in the store, by which a later run goes on.

    Streams with the same `group` have the same batches, and may be merged and joined; by default
    each is alone. Of a group, `store` is where it keeps how far it is (by default a SQLite file
    `<topology>.batches.db` in the working directory), `max_batches` how many may be in progress
    (1), `interval_s` the least time between two (0), `skip` what becomes of one that keeps failing;
    they are said once. Raises TopologyError or one of its kinds. Storm: TridentTopology.newStream.
    """
    where = f"topology {topology.id!r}, batches {id!r}"
    check_id(id, where)
    for part in ("coordinator", "emitter", "kind", "emits"):
        if not hasattr(spout, part):
            raise TopologyError(
                f"{where}: {name_of(spout)} is not a batch spout; give one of sunshower.trident, "
                "or one with a coordinator and an emitter"
            )
    most = spout.parallelism_max
    if most is not None and parallelism > most:
        raise TopologyError(
            f"{where}: parallelism is {parallelism}, but {name_of(type(spout))} has at most {most}"
        )
    program = topology.guest(StreamProgram)
    program.check_open(where)
    drafts = [stage for one in program.groups.values() for stage in one.stages]
    if any(stage.spout is not None and stage.root == id for stage in drafts):
        raise DuplicateComponent(f"{where}: there is one of that id already")
    schema = columns_schema(spout.emits, where) if spout.emits is not None else None
    if schema is None:
        raise TopologyError(
            f"{where}: nothing says which fields its records have; give {name_of(type(spout))} "
            'type=Word, or fields=("word",)'
        )
    draft = program.groups.setdefault(group or id, GroupDraft(program, group or id))
    check_id(draft.id, where)
    _settings(draft, where, store=store, max_batches=max_batches, interval_s=interval_s, skip=skip)
    stage = StageDraft(draft, id, parallelism, spout, schema)
    return BatchStream(Spring(schema, stage))


def _settings(draft: GroupDraft, where: str, **given: Any) -> None:
    """Keep what is said of a group. Raises ConfigError for nonsense, or if it says otherwise."""
    for name, value in given.items():
        if value is None:
            continue
        known = getattr(draft, name)
        if known is not None and known != value:
            raise ConfigError(
                f"{where}: group {draft.id!r} has {name}={known!r} already; say it once"
            )
        setattr(draft, name, value)
    if draft.max_batches is not None and draft.max_batches < 1:
        raise ConfigError(f"{where}: max_batches is {draft.max_batches}; it must be at least 1")
    if draft.interval_s is not None and draft.interval_s < 0:
        raise ConfigError(f"{where}: interval_s is {draft.interval_s}; it must be at least 0")
