"""A batch group as it is declared to the topology: stages, and who feeds whom.

The words of the DSL (streams.py) are planned into this, and assemble.py makes of it an ordinary
spout and ordinary bolts. Storm: org.apache.storm.trident.topology.TridentTopologyBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple, Protocol

from sunshower.records import Schema
from sunshower.stores.tree import Tree
from sunshower.trident.spouts.port import TridentSpout
from sunshower.trident.stages.port import Operator, Waiting, publishing


class Feed(NamedTuple):
    """An input of an operator: which node of the stage, and as which of its inputs."""

    node: int
    source: int


class Sharing(Protocol):
    """How the rows of an output are shared out among the tasks of the stage that reads them."""

    def prepare(self, targets: int, index: int) -> None:
        """There are so many receiving tasks; ours is task `index` of the sending stage."""

    def split(self, txid: int, rows: Sequence[Any]) -> list[tuple[int, Sequence[Any]]]:
        """(index of a receiving task, its rows), for those that get some."""


@dataclass(frozen=True)
class Node:
    """An operator, and the nodes of the same stage that read what it emits."""

    operator: Operator
    feeds: tuple[Feed, ...] = ()


@dataclass(frozen=True)
class Input:
    """A stream of parts that comes from another stage, and who reads its rows."""

    stage: str
    stream: str
    schema: Schema
    feeds: tuple[Feed, ...]


@dataclass(frozen=True)
class Output:
    """What one node (None: the stage's spout) sends to one other stage, on a stream of its own."""

    node: int | None
    stream: str
    target: str
    schema: Schema
    sharing: Sharing
    counted: bool = True  # the target is told how many parts there are; not where rows leave


@dataclass(frozen=True)
class Source:
    """A batch spout, whose emitters are the first step of their stage."""

    id: str  # its name in the store, by which a later run goes on; also the id of its stage
    spout: TridentSpout
    schema: Schema
    feeds: tuple[Feed, ...]


@dataclass(frozen=True)
class Stage:
    """One bolt: `nodes` stand in an order in which each comes after those that it reads."""

    id: str
    parallelism: int
    nodes: tuple[Node, ...] = ()
    source: Source | None = None
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    leaves: bool = False  # an ordinary bolt, declared already, which takes rows out of batches

    @property
    def commits(self) -> bool:
        """Whether it has a part in the commit phase of its own accord."""
        own = self.source is not None and self.source.spout.commits
        return own or any(node.operator.commits for node in self.nodes)

    @property
    def hears_of_success(self) -> bool:
        """Whether it is to be told which batches are committed."""
        return self.source is not None or any(publishing(node.operator) for node in self.nodes)

    @property
    def waits(self) -> bool:
        """Whether one of its operators waits for somebody else's work."""
        return any(isinstance(node.operator, Waiting) for node in self.nodes)


@dataclass(frozen=True)
class Skip:
    """What becomes of a batch that has failed `attempts` times.

    `dead_letters` is None: the topology halts, and says why. Else its rows go there as JSON lines,
    with the cause, and for all others it is an empty batch; states must be opaque, to undo what an
    earlier attempt has written.
    """

    attempts: int = 5
    dead_letters: str | PurePath | None = None


@dataclass(frozen=True)
class Group:
    """Stages whose batches have the same txids, and the master that coordinates them."""

    id: str
    stages: tuple[Stage, ...]
    store: Callable[[], Tree]  # opens where the coordinator and the spouts keep what they know,
    root: str = (
        "/transactional"  # below `root`/<id of the spout>. Storm: transactional.zookeeper.root
    )
    max_batches: int = 1  # batches in progress. Storm: topology.max.spout.pending
    interval_s: float = 0.0  # at least, between the beginnings of two batches
    skip: Skip = Skip()
