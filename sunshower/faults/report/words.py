"""Numbers and names as they are written on a page, in a table, beside an axis."""

from __future__ import annotations

import textwrap
from typing import Any


def figure(value: Any) -> str:
    """A number as people read it: thousands parted, four figures of a fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() or abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def span(seconds: float) -> str:
    """How long something took, in three figures: `20.4 s`, `0.609 s`, `18.5 ms`, `0 s`."""
    if not seconds or seconds >= 0.1:
        return f"{seconds:,.3g} s" if seconds < 1_000 else f"{seconds:,.0f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} µs"


def moment(seconds: float) -> str:
    """When something was, from the start of a run: all in two decimals, to be read one below the
    other."""
    return f"{seconds:,.2f} s"


def shortened(words: str, letters_max: int = 34) -> str:
    """The same, if need be without its end: a label must not take the room of its chart."""
    return words if len(words) <= letters_max else f"{words[: letters_max - 1]}…"


def wrapped(words: str, letters_max: int = 34) -> str:
    """The same in two lines, if need be; what is too long for these is without its end."""
    return "\n".join(textwrap.wrap(words, letters_max, max_lines=2, placeholder=" …"))


def width_of(label: str) -> int:
    """The letters of its longest line."""
    return max(map(len, label.split("\n")))
