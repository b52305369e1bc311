"""`sunshower describe`: a topology as text to read, or as Mermaid to draw."""

from __future__ import annotations

from typing import Annotated

import typer

from sunshower.cli.run import Target

Mermaid = Annotated[
    bool, typer.Option("--mermaid", help="Print a Mermaid flowchart instead of text.")
]


def describe(target: Target, mermaid: Mermaid = False) -> None:
    """Print a topology: its components, their tasks, streams and groupings. Runs nothing."""
    from sunshower.cli.loading import load
    from sunshower.topologies.describe import as_mermaid, as_text

    graph = load(target).topology.graph()
    typer.echo(as_mermaid(graph) if mermaid else as_text(graph))
