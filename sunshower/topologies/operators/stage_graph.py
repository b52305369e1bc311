"""The stage as it runs: its operators, and what reads the rows that each of them emits.

`StageBuilder.frozen_nodes` makes the nodes. Two drivers run them: `OperatorBolt` on an ordinary
stream, a tree per record, and `StageBolt` in exactly-once batches, a transaction per batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sunshower.records import Schema
from sunshower.topologies.operators.generated_stages import can_generate
from sunshower.topologies.operators.port import Operator


class Feed(NamedTuple):
    """An input of an operator: its node in the stage, and the number of the input."""

    node: int
    source: int


@dataclass(frozen=True)
class StageNode:
    """An operator, and what reads the rows that it emits. `stream`: of an ordinary stream, the
    stream on which they leave the stage."""

    operator: Operator
    feeds: tuple[Feed, ...] = ()
    schema: Schema | None = None  # of what it emits; None: nothing needs to know
    stream: str | None = None


def behind(nodes: Sequence[StageNode], first: int) -> Iterator[int]:
    """A node, and all that its rows reach: each before its readers."""
    yield first
    for feed in nodes[first].feeds:
        yield from behind(nodes, feed.node)


def row_chains(
    nodes: Sequence[StageNode], fed: Sequence[Feed] = (), sends: Sequence[int | None] = ()
) -> list[list[int]]:
    """The nodes whose functions become one: each of a chain is the only reader of the node before,
    whose rows go nowhere else. `fed`: the inputs of rows from outside; `sends`: the nodes whose
    rows leave the stage, besides those with a stream."""
    only_reader = {
        index: node.feeds[0].node
        for index, node in enumerate(nodes)
        if len(node.feeds) == 1 and node.stream is None and index not in sends
        if can_generate(node.operator) and can_generate(nodes[node.feeds[0].node].operator)
    }
    others = (node.feeds for index, node in enumerate(nodes) if index not in only_reader)
    chains = []
    for first in sorted({feed.node for feeds in (fed, *others) for feed in feeds}):
        chain = [first]
        while chain[-1] in only_reader:
            chain.append(only_reader[chain[-1]])
        if can_generate(nodes[first].operator):
            chains.append(chain)
    return chains
