"""Formats numbers, times and labels for pages, tables and axes."""

from __future__ import annotations

import textwrap
from typing import Any

_LETTERS_MAX = 34  # of a line of a label


def figure(value: Any) -> str:
    """Format a number with thousands separators, or with four significant digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() or abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def span(seconds: float) -> str:
    """Format a duration with three digits: `20.4 s`, `0.609 s`, `18.5 ms`, `0 s`."""
    if not seconds or seconds >= 0.1:
        return f"{seconds:,.3g} s" if seconds < 1_000 else f"{seconds:,.0f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} µs"


def moment(seconds: float) -> str:
    """Format a time from the start of a run, with two decimals."""
    return f"{seconds:,.2f} s"


def wrapped(words: str) -> str:
    """Return a label on at most two lines, cut to their length."""
    return "\n".join(textwrap.wrap(words, _LETTERS_MAX, max_lines=2, placeholder=" …"))
