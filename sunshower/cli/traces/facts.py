"""Recorded tuple trees as plain data, and sentences about those that are missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sunshower.errors import ClusterError
from sunshower.runtime.events.trace_recorder import Traces, TupleTrace
from sunshower.runtime.plan import Plan

_LISTED_MAX = 50  # of each list of the page


def traces_fields(recorded: Traces, trees: Iterable[TupleTrace]) -> dict[str, Any]:
    """What `sunshower trace --json` prints: these trees, and the workers that did not answer."""
    return {"trees": [tree_fields(tree) for tree in trees], "silent": recorded.silent}


def tree_fields(tree: TupleTrace) -> dict[str, Any]:
    """The fields of a tree, with its latency in seconds."""
    return {**asdict(tree), "latency_s": tree.latency_s}


def listed_trees(plan: Plan, recorded: Traces) -> dict[str, Any]:
    """The failed, the slowest and the latest trees, 50 of each, with how many there are;
    `none`: why a list is empty."""
    kinds = {"failed": recorded.failed, "slowest": recorded.slowest, "latest": recorded.trees}
    return {
        "lists": {kind: [_row(tree) for tree in trees[:_LISTED_MAX]]
                  for kind, trees in kinds.items()},
        "counts": {kind: len(trees) for kind, trees in kinds.items()},
        "none": {kind: why_none(plan, failed=kind == "failed" and bool(recorded.trees))
                 for kind in kinds},
        "missing": missing(recorded),
    }  # fmt: skip


def no_such_tree(name: str, root: str, *, failed: bool = False) -> ClusterError:
    """The error for a root that no worker has recorded."""
    return ClusterError(
        f"no {'failed ' * failed}tree {root} of {name!r} is recorded, or not any more; "
        f"`sunshower trace {name}` lists those that are"
    )


def missing(recorded: Traces) -> list[str]:
    """A sentence for each worker that did not answer."""
    return [
        f"worker {worker} does not answer: what it has recorded is missing"
        for worker in recorded.silent
    ]


def why_none(plan: Plan, *, failed: bool = False) -> str:
    """Why there are no trees, or no failed ones."""
    config = plan.graph.config
    if not config.tracked:
        return "The topology has ackers=0: its tuples are not tracked, so there are no trees."
    if not config.trace_share:
        return "The topology has trace_share=0: nothing is recorded."
    if failed:
        return "No recorded tree has failed. A tuple is recorded for sure from its first replay on."
    return "No tree is recorded yet."


def _row(tree: TupleTrace) -> dict[str, Any]:
    """The fields of a tree with the number of its edges: an edge has up to 1 kB."""
    fields = tree_fields(tree)
    hops = fields.pop("hops")
    return {**fields, "edges": len(hops) + tree.dropped}
