"""The queries of Nexmark by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from examples.nexmark import joins, stateless, totals, windows
from examples.nexmark.inputs import Inputs
from sunshower import Stream

QUERIES: dict[str, Callable[[Inputs], Stream[Any]]] = {
    "q0": stateless.q0,
    "q1": stateless.q1,
    "q2": stateless.q2,
    "q3": joins.q3,
    "q4": joins.q4,
    "q5": windows.q5,
    "q6": joins.q6,
    "q7": windows.q7,
    "q8": windows.q8,
    "q9": joins.q9,
    "q11": windows.q11,
    "q12": windows.q12,
    "q13": joins.q13,
    "q14": stateless.q14,
    "q15": totals.q15,
    "q16": totals.q16,
    "q17": totals.q17,
    "q18": totals.q18,
    "q19": totals.q19,
    "q20": joins.q20,
    "q21": stateless.q21,
    "q22": stateless.q22,
    "q23": joins.q23,
}
