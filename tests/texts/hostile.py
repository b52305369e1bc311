"""Generates hostile values: odd texts, bytes, and objects that no encoder takes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

ESCAPES = "\x1b]0;title\x07\x1b[2J\x1b[31mAll is well\r\x9b1m\u202e"
ODD_TEXTS = ("", "\ud800", "a\x00b", "\udc80\udfff", "\ufffe\U0010ffff", "\u2028", ESCAPES)


class ReprRaises:
    """Its `repr` and `str` raise RuntimeError."""

    def __repr__(self) -> str:
        raise RuntimeError("\ud800")


class ReprExits:
    """Its `repr` raises SystemExit."""

    def __repr__(self) -> str:
        raise SystemExit


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("\ud800")


def recursive_list() -> list[Any]:
    value: list[Any] = [{}]
    value[0]["self"] = value
    return value


def nested(depth: int) -> Any:
    value: Any = "core"
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


def doubled(depth: int) -> Any:
    """Return a list that has 2 ** depth members when it is written out."""
    value: Any = ["x"]
    for _ in range(depth):
        value = [value, value]
    return value


def odd_values() -> list[Any]:
    """Return values that some encoder refuses, that contain themselves, or that are very large."""
    numbers = [float("nan"), float("-inf"), 2**64, -(2**63) - 1, 10**5000, 1 + 2j]
    deep = [recursive_list(), nested(200), nested(5000)]
    others = [ReprRaises(), [ReprRaises()], ReprExits(), {1: 2}, {"\ud800": "\x00"}, {b"k"}, object]
    large = ["ä\ud800" * 100_000, b"\x00\xff" * 100_000, list(range(100_000))]
    return [*ODD_TEXTS, b"\xff\x00", bytearray(b"\x80"), *numbers, *deep, *others, *large]


texts = st.text(st.characters(), max_size=50) | st.sampled_from(ODD_TEXTS)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.binary(max_size=50)
    | st.builds(ReprRaises)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(texts | st.integers(), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=20,
) | st.deferred(lambda: st.sampled_from(odd_values()))
