"""The queries of Nexmark by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from examples.nexmark import joins, patterns, stateless, totals, windows
from examples.nexmark.inputs import Inputs
from sunshower import Stream

QUERIES: dict[str, Callable[[Inputs], Stream[Any]]] = {
    name: query
    for module in (stateless, windows, joins, totals, patterns)
    for name, query in vars(module).items()
    if name[0] in "pq" and name[1:].isdigit()
}
