"""The lists of recorded tuple trees that the page shows."""

from __future__ import annotations

from typing import Any

from sunshower.cli.traces.facts import missing, tree_fields, why_none
from sunshower.runtime.plan import Plan
from sunshower.runtime.tuple_traces import Traces, TupleTrace

LISTED_MAX = 50  # of each list


def listed_trees(plan: Plan, found: Traces) -> dict[str, Any]:
    """The failed, the slowest and the latest trees, LISTED_MAX of each, with how many there are;
    `none`: why a list is empty."""
    kinds = {"failed": found.failed, "slowest": found.slowest, "latest": found.trees}
    return {
        "lists": {kind: [_row(tree) for tree in trees[:LISTED_MAX]]
                  for kind, trees in kinds.items()},
        "counts": {kind: len(trees) for kind, trees in kinds.items()},
        "none": {kind: why_none(plan, failed=kind == "failed" and bool(found.trees))
                 for kind in kinds},
        "missing": missing(found),
    }  # fmt: skip


def _row(tree: TupleTrace) -> dict[str, Any]:
    """The fields of a tree with the number of its edges: an edge has up to 1 kB."""
    fields = tree_fields(tree)
    hops = fields.pop("hops")
    return {**fields, "edges": len(hops) + tree.dropped}
