"""What notebooks show of records and counters: tables.

IPython calls `_repr_html_` of a value; `_repr_pretty_` is for its consoles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from sunshower.records import Schema, record_class
from sunshower.scalars import SCALARS
from sunshower.texts import describe

_VALUE_BYTES = 120  # of a value in a table


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
