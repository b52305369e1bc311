"""What notebooks show: tables of records and counters, and the graph, drawn as on the page.

IPython calls `_repr_html_` of a value; `_repr_pretty_` is for its consoles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from sunshower.records import Schema, record_class
from sunshower.scalars import SCALARS
from sunshower.texts import describe
from sunshower.topologies.describe import as_text
from sunshower.topologies.graph import Graph, is_internal

_PAGE = Path(__file__).resolve().parents[1] / "cli/ui/static"
_VALUE_BYTES = 120  # of a value in a table
_EXPORT = re.compile(r"export\{([^}]*)\}")  # the last statement of a library


# ---- tables -------------------------------------------------------------------------------------


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """An HTML table; numbers are on the right."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    title = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def text_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The same for a terminal."""
    lines = [[*columns], *([_shown(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (zip(line, widths, strict=True) for line in lines)
    return "\n".join("  ".join(f"{v:{w}}" for v, w in line).rstrip() for line in padded)


def _cell(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f'<td style="text-align:{"right" if is_number else "left"}">{escape(_shown(value))}</td>'


def _shown(value: Any) -> str:
    if isinstance(value, str) and value.isprintable():
        return value if len(value) <= _VALUE_BYTES else f"{value[:_VALUE_BYTES]}…"
    if type(value) in SCALARS:  # such as a datetime
        return str(value)
    return describe(value, _VALUE_BYTES)


# ---- records ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """The first records of a stream, in the order of their arrival: a table in a notebook, and with
    `print`. `note` says whether there are more."""

    records: Sequence[Any]
    schema: Schema
    note: str

    def __len__(self) -> int:
        return len(self.records)

    def rows(self) -> list[Sequence[Any]]:
        """The values of the fields of each record."""
        if self.schema.is_tuple:
            return [*self.records]
        values = record_class(self.schema.type).values
        return [values(record) for record in self.records]

    def __repr__(self) -> str:
        return f"{text_table(self.schema.fields, self.rows())}\n({self.note})"

    def _repr_html_(self) -> str:
        return html_table(self.schema.fields, self.rows(), self.note)


def schema_html(title: str, schema: Schema) -> str:
    """The fields of a stream and their types."""
    kinds = [(field, _name(schema.kind(field))) for field in schema.fields]
    return html_table(("field", "type"), kinds, f"{title}: {schema.name}; its records: .show()")


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")


# ---- graph --------------------------------------------------------------------------------------


def graph_html(graph: Graph) -> str:
    """The graph as the page draws it, by the code of the page; where scripts do not run, its
    text."""
    shown = [component for component in graph.components.values() if not is_internal(component.id)]
    ids = {component.id for component in shown}
    nodes = [
        {
            "id": c.id,
            "isSpout": c.level.is_spout,
            "facts": f"{'spout' if c.level.is_spout else 'bolt'} × {c.parallelism}",
        }
        for c in shown
    ]
    edges = {  # two components may be connected by several streams
        (read.source, c.id): {"source": read.source, "target": c.id}
        for c in shown
        for read in c.inputs
        if read.source in ids and not is_internal(read.stream)
    }
    given = json.dumps({"nodes": nodes, "edges": [*edges.values()]}).replace("<", "\\u003c")
    text = escape(as_text(graph, internals=False))
    return (
        f"<div><pre>{text}</pre><script>((box, given) => {{\n{_drawing()}\n"
        f"drawGraph(box, given);}})(document.currentScript?.parentElement, {given});"
        "</script></div>"
    )


@cache
def _drawing() -> str:
    """The scripts of the page that place and draw a graph, as one function body."""
    library = (_PAGE / "vendor/dagre.js").read_text(encoding="utf-8")
    exported = _EXPORT.search(library)
    assert exported is not None
    parts = (part.partition(" as ") for part in exported[1].split(","))
    names = {public: own for own, _, public in parts}
    dagre = (
        f"const [Graph, place] = (() => {{ {library[: exported.start()]} "
        f"return [{names['Graph']}, {names['layout']}]; }})();"
    )
    own = [(_PAGE / name).read_text(encoding="utf-8") for name in ("layout.js", "notebook.js")]
    plain = re.sub(r"^import .*$|^export ", "", "\n".join(own), flags=re.MULTILINE)
    return f"{dagre}\n{plain}".replace("</script", "<\\/script")
