"""The plan of a batch group: stages, and the streams between them.

`declaration/stage_builder.py` makes it, and `stage_builder.py` turns it into an ordinary spout and
ordinary bolts. Storm: org.apache.storm.trident.topology.TridentTopologyBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple, Protocol, runtime_checkable

from sunshower.arguments import COUNT, check_all
from sunshower.config import NOTHING, Resources
from sunshower.records import Schema
from sunshower.state.tree import Tree
from sunshower.topologies.operators.port import Attempt, Operator
from sunshower.topologies.operators.windows.event_times import TimeField
from sunshower.trident.coordination.attempts import SourceTime
from sunshower.trident.spouts.port import TridentSpout
from sunshower.trident.states.marks import CountedIn

# ---- port ----------------------------------------------------------------------------------------
# Operators of exactly-once batches that publish, or wait for work outside their task.
#
# The port of all operators is `sunshower/topologies/operators/port.py`.


class Publishing(Operator):
    """An operator that stages its output by txid and publishes it once the batch is committed.
    `succeeded` follows soon after the commit, but a crash may prevent the call. A later call then
    covers the batch, and a new task can ask `counted`, which `GroupBuilder.freeze` sets."""

    publishes: bool = True  # False: this one has nothing to publish
    counted: CountedIn | None = None

    def succeeded(self, txid: int) -> None:
        """The batches up to `txid` are committed."""
        raise NotImplementedError


def publishing(operator: Operator) -> Publishing | None:
    """The operator, if it publishes."""
    return operator if isinstance(operator, Publishing) and operator.publishes else None


class Timed(Operator):
    """An operator that needs to know how far the sources are in event time."""

    def note_times(self, batch: Any, times: Mapping[str, SourceTime]) -> None:
        """Called before `finish`: those of all sources upstream at the end of the batch."""
        raise NotImplementedError


@runtime_checkable
class Waiting(Protocol):
    """An operator whose results come from outside its task, such as Spark. The task polls `ready`
    several times a second and processes other batches meanwhile. It resets the timeout of the
    batch's tree."""

    def ready(self, batch: Any, attempt: Attempt) -> bool:
        """Whether `finish` would return at once. Called repeatedly once `finish` may run; the first
        call starts the work. An exception fails the batch."""

    def give_up(self, batch: Any) -> None:
        """The attempt is over, finished or not: stop the work that was started for it."""


# ---- plan ----------------------------------------------------------------------------------------


class Feed(NamedTuple):
    """An input of an operator: its node in the stage, and the number of the input."""

    node: int
    source: int


class Sharing(Protocol):
    """How the rows of an output are distributed among the tasks of the receiving stage."""

    def prepare(self, targets: int, index: int) -> None:
        """Set the number of receiving tasks and the index of the sending task."""

    def split(self, txid: int, rows: Sequence[Any]) -> list[tuple[int, Sequence[Any]]]:
        """(index of a receiving task, its rows), for tasks that get rows."""


@dataclass(frozen=True)
class StageNode:
    """An operator, and the nodes of the same stage that read its output."""

    operator: Operator
    feeds: tuple[Feed, ...] = ()


@dataclass(frozen=True)
class StageInput:
    """A stream of parts from another stage, and the nodes that read its rows."""

    stage: str
    stream: str
    schema: Schema
    feeds: tuple[Feed, ...]


@dataclass(frozen=True)
class StageOutput:
    """What one node (None: the stage's spout) sends to another stage, on its own stream."""

    node: int | None
    stream: str
    target: str
    schema: Schema
    sharing: Sharing
    counted: bool = True  # the target gets the number of parts; not where rows leave their batches


@dataclass(frozen=True)
class Source:
    """A batch spout, whose emitters are the first step of their stage."""

    id: str  # its name in the store, by which a later run continues; also its stage's id
    spout: TridentSpout
    schema: Schema
    feeds: tuple[Feed, ...]
    ends_windows: bool = False  # windows of time are downstream, which its end may end
    time: TimeField | None = None  # the event time of its rows, if these windows use it


@dataclass(frozen=True)
class Stage:
    """One bolt; in `nodes` each node comes after those it reads."""

    id: str
    parallelism: int
    nodes: tuple[StageNode, ...] = ()
    source: Source | None = None
    inputs: tuple[StageInput, ...] = ()
    outputs: tuple[StageOutput, ...] = ()
    leaves: bool = False  # an ordinary bolt, declared already, that takes rows out of batches
    resources: Resources = NOTHING  # of each task

    @property
    def commits(self) -> bool:
        """Whether the stage itself takes part in the commit phase."""
        own = self.source is not None and self.source.spout.commits
        return own or any(node.operator.commits for node in self.nodes)

    @property
    def receives_success(self) -> bool:
        """Whether it receives `$success`."""
        return self.source is not None or any(publishing(node.operator) for node in self.nodes)

    @property
    def waits(self) -> bool:
        """Whether one of its operators waits for work outside its task."""
        return any(isinstance(node.operator, Waiting) for node in self.nodes)


@dataclass(frozen=True)
class Skip:
    """What to do with a batch that has failed `attempts` times.

    With `dead_letters` None the topology halts with the cause. Otherwise the rows and the cause go
    to that file as JSON lines, and the batch is empty for all other components. States must then be
    opaque, to undo what an earlier attempt has written.
    """

    attempts: int = 5
    dead_letters: str | PurePath | None = None

    def __post_init__(self) -> None:
        check_all(self, {"attempts": COUNT}, "Skip: ")


@dataclass(frozen=True)
class Group:
    """Stages whose batches have the same txids, and the master that coordinates them."""

    id: str
    stages: tuple[Stage, ...]
    store: Callable[[], Tree]  # opens the store of the coordinator's and the spouts' progress
    root: str = "/transactional"  # a node for each spout. Storm: transactional.zookeeper.root
    max_batches: int = 1  # batches in progress. Storm: topology.max.spout.pending
    interval_s: float = 0.0  # least time between the beginnings of two batches
    skip: Skip = Skip()
    classes: tuple[type, ...] = ()  # the Enums and record types that the rows may hold
