"""A stream program while it is declared: the stages, and where the rows of each stream are.

    Spring     rows of the spout, in its stage
    Made       rows that an operator emits, in its stage
    Sent       rows that a stage receives from another one
    Mixed      rows of several of these, before any operator reads them

A repartitioning begins a stage. `planner.py` turns the drafts into a `Group`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sunshower.errors import DuplicateComponent, TopologyError
from sunshower.records import Schema
from sunshower.state.tree import Tree
from sunshower.topologies.outputs import check_id
from sunshower.topologies.topology import Topology
from sunshower.trident.spouts.port import TridentSpout
from sunshower.trident.stages.plan import Sharing, Skip
from sunshower.trident.stages.port import Operator
from sunshower.trident.stages.sharing import Even
from sunshower.trident.stages.steps import Step


class Program:
    """All batch groups that are declared on one topology."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.groups: dict[str, GroupDraft] = {}
        self.states: dict[str, str] = {}  # name → the declaration that writes it
        self.folders: dict[str, str] = {}  # folder of a table → the declaration that writes it
        self.built = False

    def check_open(self, where: str) -> None:
        """Raise TopologyError if the topology is built."""
        if self.built:
            raise TopologyError(
                f"{where}: this stream is used after its topology was built; declare all of it "
                "before the topology is run, described or submitted"
            )

    def keep_state(self, name: str, where: str) -> None:
        """Register a state's name. Raises DuplicateComponent if it is taken, TopologyError if
        invalid. Names that differ only in case are equal, as for tables in SQLite."""
        check_id(name, where)
        known = next((one for one in self.states if one.lower() == name.lower()), None)
        if known is not None:
            raise DuplicateComponent(
                f"{where}: there is a state {known!r} already, of {self.states[known]}; a state "
                "has one place that writes it: give this one another name= (not in case alone), or "
                "merge the streams"
            )
        self.states[name] = where

    def keep_folder(self, folder: str, where: str) -> None:
        """Register a table's folder. Raises DuplicateComponent if it is taken."""
        if folder in self.folders:
            raise DuplicateComponent(
                f"{where}: {folder} is the table of {self.folders[folder]} already, and a table is "
                "written in one place: give this one another folder, or merge the streams"
            )
        self.folders[folder] = where


@dataclass(eq=False)
class GroupDraft:
    """Spouts and stages whose batches have the same txids. None: the option was not given."""

    program: Program
    id: str
    store: Callable[[], Tree] | None = None
    max_batches: int | None = None
    interval_s: float | None = None
    skip: Skip | None = None
    stages: list[StageDraft] = field(default_factory=list)


@dataclass(eq=False)
class StageDraft:
    """A future bolt; `root` is the spout that its first rows come from."""

    group: GroupDraft
    root: str
    parallelism: int
    spout: TridentSpout | None = None
    schema: Schema | None = None  # of the spout's rows
    name: str | None = None
    leaves: bool = False  # as Stage.leaves
    steps: list[Made] = field(default_factory=list)

    def __post_init__(self) -> None:
        if type(self.parallelism) is not int or self.parallelism < 1:
            raise TopologyError(
                f"{self.where('')}: parallelism is {self.parallelism!r}; it is the number of "
                "tasks, a whole number of at least 1"
            )
        self.group.program.check_open(self.where(""))
        self.group.stages.append(self)

    def where(self, word: str) -> str:
        """The location of a declaration, for error messages."""
        topology = self.group.program.topology.id
        return f"topology {topology!r}, batches {self.root!r}" + (f", {word}" if word else "")


@dataclass(eq=False)
class Tip:
    """Where the rows of a stream are."""

    schema: Schema

    @property
    def stage(self) -> StageDraft:
        """The stage of the rows, or the first of several."""
        raise NotImplementedError

    def parts(self) -> tuple[Tip, ...]:
        """The single places that the rows come from."""
        return (self,)


@dataclass(eq=False)
class Spring(Tip):
    """Rows of a spout."""

    at: StageDraft

    @property
    def stage(self) -> StageDraft:
        return self.at


@dataclass(eq=False)
class Made(Tip):
    """Rows that an operator emits. `inputs[i]` are the places that feed its input i."""

    at: StageDraft
    operator: Operator
    inputs: tuple[tuple[Tip, ...], ...]

    def __post_init__(self) -> None:
        self.at.group.program.check_open(self.at.where(type(self.operator).__name__.lower()))
        self.at.steps.append(self)

    @property
    def stage(self) -> StageDraft:
        return self.at


@dataclass(eq=False)
class Sent(Tip):
    """Rows of `origins`, distributed among the tasks of another stage."""

    at: StageDraft
    origins: tuple[Tip, ...]
    sharing: Sharing

    @property
    def stage(self) -> StageDraft:
        return self.at


@dataclass(eq=False)
class Mixed(Tip):
    """Rows of several places."""

    tips: tuple[Tip, ...]
    arrived: Sent | None = None  # set once they were read, if they came from several stages

    @property
    def stage(self) -> StageDraft:
        return self.tips[0].stage

    def parts(self) -> tuple[Tip, ...]:
        return tuple(part for tip in self.tips for part in tip.parts())


def send(tip: Tip, sharing: Sharing, stage: StageDraft) -> Sent:
    """Send rows to another stage."""
    origins = []
    for part in tip.parts():
        passed = isinstance(part, Sent)  # a stage that only forwards rows
        origins.append(Made(part.schema, part.stage, Step(), ((part,),)) if passed else part)
    return Sent(tip.schema, stage, tuple(origins), sharing)


def gather(tip: Tip) -> tuple[Tip, ...]:
    """The places within one stage from which an operator can read these rows."""
    parts = tip.parts()
    if len({part.stage for part in parts}) == 1:
        return parts
    assert isinstance(tip, Mixed), "one place has one stage"
    if tip.arrived is None:
        wide = max(part.stage.parallelism for part in parts)
        stage = StageDraft(tip.stage.group, tip.stage.root, wide)
        tip.arrived = send(tip, Even(), stage)
    return (tip.arrived,)


def name_stage(tip: Tip, id: str, where: str) -> None:
    """Set the id of the stage of these rows."""
    check_id(id, where)
    if isinstance(tip, Mixed):
        tip = gather(tip)[0]
    if tip.stage.spout is not None:
        raise TopologyError(
            f"{where}: these rows are still in the bolt of the spout {tip.stage.root!r}, which has "
            "its name; a repartitioning begins a new one"
        )
    tip.stage.group.program.check_open(where)
    tip.stage.name = id


def origins_of(stage: StageDraft) -> Iterator[StageDraft]:
    """The stages that feed this one directly; a stage may occur several times."""
    for step in stage.steps:
        for tips in step.inputs:
            for tip in tips:
                yield from _senders(tip)


def before(tip: Tip) -> set[StageDraft]:
    """All stages upstream of the rows, including the one they are in."""
    found: set[StageDraft] = set()
    frontier = [stage for part in tip.parts() for stage in (part.stage, *_senders(part))]
    while frontier:
        stage = frontier.pop()
        if stage not in found:
            found.add(stage)
            frontier += origins_of(stage)
    return found


def is_uneven(tip: Tip) -> bool:
    """Whether another attempt may send these rows to other tasks: they were distributed round-robin
    in arrival order."""
    parts = tip.parts()
    if len({part.stage for part in parts}) > 1:
        return True  # `gather` distributes them evenly
    return any(
        isinstance(part.sharing, Even)
        if isinstance(part, Sent)
        else isinstance(part, Made) and any(is_uneven(tip) for tips in part.inputs for tip in tips)
        for part in parts
    )


def _senders(tip: Tip) -> list[StageDraft]:
    return [origin.stage for origin in tip.origins] if isinstance(tip, Sent) else []


def tips_of(streams: Sequence[Any], where: str) -> list[Tip]:
    """The places of several streams' rows. Raises TopologyError for a value that is not a stream of
    batches, or is of another group."""
    for stream in streams:
        if not isinstance(getattr(stream, "tip", None), Tip):
            raise TopologyError(f"{where}: {stream!r:.200} is no stream of batches")
    tips = [stream.tip for stream in streams]
    same_group(tips, where)
    return tips


def same_group(tips: Sequence[Tip], where: str) -> None:
    """Raise TopologyError for rows of several groups."""
    groups: dict[Any, Tip] = {tip.stage.group: tip for tip in tips}
    if len(groups) > 1:
        names = " and ".join(f"{tip.stage.root!r}" for tip in groups.values())
        raise TopologyError(
            f"{where}: {names} are of different groups, whose batches have nothing to do with each "
            'other; declare them with the same group, as in batches(…, group="orders")'
        )
