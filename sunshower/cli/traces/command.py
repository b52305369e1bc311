"""`sunshower trace`: lists recorded tuple trees, draws one, or exports them to OpenTelemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sunshower.cli.cluster_options import Address, Name, connect
from sunshower.cli.formatting import Terminal, echo, echo_json, print_lines
from sunshower.cli.run import AsJson

if TYPE_CHECKING:
    from sunshower.runtime.tuple_traces import Traces, TupleTrace

Root = Annotated[
    str | None,
    typer.Argument(metavar="[ROOT]", show_default=False, help="The root id of the tree to draw."),
]
Failed = Annotated[bool, typer.Option("--failed", help="Only trees that have failed.")]
Limit = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="The number of rows of each table; with --json, of trees.",
    ),
]
Otlp = Annotated[
    str | None,
    typer.Option(
        "--otlp",
        metavar="URL",
        show_default=False,
        help="Send the trees as spans to an OpenTelemetry receiver: http://localhost:4318",
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
    """Draw the tree of one tuple, or list the recorded trees.

    Recorded are a share of all trees (the setting `trace_share`), and every replay of a failed
    tuple. A worker keeps the last 1,000 trees, up to 4 MiB.
    """
    from sunshower.cli.traces.drawing import drawn_tree, tables
    from sunshower.cli.traces.facts import missing, no_such_tree, traces_fields, why_none

    if otlp is not None:
        from sunshower.installed import check_packages

        check_packages("traces", "which sends spans", "opentelemetry.exporter.otlp.proto.http")
    with connect(address) as cluster:
        run = cluster.find(name)
        found, plan = run.traces(root), run.plan
    trees = found.failed if failed else found.trees
    if root is not None and not trees:
        raise no_such_tree(name, root, failed=failed)
    if otlp is not None:
        _export(name, found, trees, otlp)
    elif as_json:
        shown = trees if root is not None else trees[:limit]
        echo_json(traces_fields(found, shown))
    else:
        console = Terminal()
        one_tree = root is not None
        for one in [drawn_tree(trees[0])] if one_tree else tables(found, limit, failed=failed):
            console.print(one)
        if not trees:
            echo(why_none(plan, failed=failed))
        print_lines(console, missing(found), "red")


def _export(name: str, found: Traces, trees: tuple[TupleTrace, ...], url: str) -> None:
    from sunshower.cli.traces.facts import missing
    from sunshower.cli.traces.otlp import export_trees
    from sunshower.secret import shown

    count = export_trees(name, trees, found.trees, url)
    echo(f"{len(trees):,} trees with {count:,} spans were sent to {shown(url)}")
    print_lines(Terminal(stderr=True), missing(found), "red")
