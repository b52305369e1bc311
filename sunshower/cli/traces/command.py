"""`sunshower trace`: lists recorded tuple trees, draws one, or exports them to OpenTelemetry."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sunshower.cli.cluster_options import Address, Name, connect
from sunshower.cli.formatting import Terminal, echo, echo_json, print_lines
from sunshower.cli.run import AsJson
from sunshower.errors import ClusterError

if TYPE_CHECKING:
    from sunshower.runtime.plan import Plan
    from sunshower.runtime.tuple_traces import Traces, TupleTrace

Root = Annotated[
    str | None,
    typer.Argument(metavar="[ROOT]", show_default=False, help="Of the tree to draw."),
]
Failed = Annotated[bool, typer.Option("--failed", help="Only trees that have failed.")]
Limit = Annotated[
    int, typer.Option(min=1, metavar="N", help="Rows of each table; with --json, trees.")
]
Otlp = Annotated[
    str | None,
    typer.Option(
        "--otlp",
        metavar="URL",
        show_default=False,
        help="Send the trees as spans to this receiver of OpenTelemetry: http://localhost:4318",
    ),
]


def trace(
    name: Name,
    root: Root = None,
    failed: Failed = False,
    limit: Limit = 10,
    as_json: AsJson = False,
    otlp: Otlp = None,
    address: Address = "auto",
) -> None:
    """Draw the tree of one tuple, or list the trees that were recorded.

    A share of all trees is recorded (the setting `trace_share`), and every replay of a tuple that
    has failed. A worker keeps the last 1,000 of them, and 4 MiB.
    """
    from sunshower.cli.traces.drawing import tables, tree

    if otlp is not None:
        from sunshower.cli.traces.otlp import check_packages

        check_packages()
    with connect(address) as cluster:
        run = cluster.find(name)
        found, plan = run.traces(root), run.plan
    trees = found.failed if failed else found.trees
    if root is not None and not trees:
        raise ClusterError(
            f"no {'failed ' * failed}tree {root} of {name!r} is recorded, or not any more; "
            f"`sunshower trace {name}` lists those that are"
        )
    if otlp is not None:
        _export(name, found, trees, otlp)
    elif as_json:
        shown = trees if root is not None else trees[:limit]
        echo_json({"trees": [_as_json(one) for one in shown], "silent": found.silent})
    else:
        console = Terminal()
        for one in [tree(trees[0])] if root is not None else tables(found, limit, failed=failed):
            console.print(one)
        if not trees:
            echo(_why_none(plan, failed=failed))
        print_lines(console, _missing(found), "red")


def _as_json(tree: TupleTrace) -> dict[str, object]:
    return {**asdict(tree), "latency_s": tree.latency_s}


def _export(name: str, found: Traces, trees: tuple[TupleTrace, ...], url: str) -> None:
    from sunshower.cli.traces.otlp import export
    from sunshower.secret import shown

    count = export(name, trees, found.trees, url)
    echo(f"{len(trees):,} trees with {count:,} spans were sent to {shown(url)}")
    print_lines(Terminal(stderr=True), _missing(found), "red")


def _missing(found: Traces) -> list[str]:
    return [
        f"worker {worker} does not answer: what it has recorded is missing"
        for worker in found.silent
    ]


def _why_none(plan: Plan, *, failed: bool) -> str:
    config = plan.graph.config
    if not config.tracked:
        return "The topology has ackers=0: its tuples are not tracked, so there are no trees."
    if not config.trace_share:
        return "The topology has trace_share=0: nothing is recorded."
    if failed:
        return "No recorded tree has failed. A tuple is recorded for sure from its first replay on."
    return "No tree is recorded yet."
