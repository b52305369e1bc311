"""What the error of user code says of the step, the record and the field."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic
import pytest

from sunshower.runtime.tasks.user_errors import about, is_of_code, shown_traceback


class Named(NamedTuple):
    item: str
    amount: Any


@dataclass
class Classed:
    item: str
    amount: Any


@attrs.define
class Defined:
    item: str
    amount: Any


class Struct(msgspec.Struct):
    item: str
    amount: Any


class Model(pydantic.BaseModel):
    item: str
    amount: Any


KINDS: list[Any] = [Named, Classed, Defined, Struct, Model]


def half(value: Any) -> float:
    return value / 2


def attribute(sale: Any) -> Any:
    return sale.amount + 1


def in_a_helper(sale: Any) -> Any:
    return half(sale.amount)


def several_lines(sale: Any) -> Any:
    return (
        sale.item
        + sale.amount
    )  # fmt: skip


def unknown(sale: Any) -> Any:
    return sale.amuont


def raised(sale: Any) -> Any:
    raise ValueError(f"{sale.amount} is too much")


class Bolt:
    def process(self, sale: Any) -> Any:
        return sale.amount + 1


def error_of(function: Callable[[Any], Any], record: Any) -> BaseException:
    with pytest.raises((TypeError, AttributeError, ValueError, KeyError, ExceptionGroup)) as raised:
        function(record)
    return raised.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (attribute, "step `attribute`, field `amount` of "),
        (in_a_helper, "step `in_a_helper`, field `amount` of "),
        (several_lines, "step `several_lines`, fields `item`, `amount` of "),
        (unknown, "step `unknown`, record "),
        (raised, "step `raised`, field `amount` of "),
        (lambda sale: sale.amount + 1, "step `lambda in line "),
        (Bolt().process, "step `Bolt.process`, field `amount` of "),
    ],
)
def test_an_error_names_step_record_and_field(
    kind: Any, function: Callable[[Any], Any], expected: str
) -> None:
    record = kind(item="a", amount=[])
    error = error_of(function, record)
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without the test's
    text = about(error, None, "component")
    assert text.startswith(expected)
    assert repr(record) in text
    assert ("did you mean 'amount'?" in text) == (function is unknown)


def test_an_error_without_a_frame_of_the_user_names_the_component_and_its_input() -> None:
    assert about(ValueError("no"), Named("a", 1), "prices") == (
        "step `prices`, record Named(item='a', amount=1)"
    )
    assert about(ValueError("no"), None, "prices") == ""


class Hostile:
    """Its code raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_records_whose_code_raises_are_named_by_their_type() -> None:
    error = error_of(half, Hostile())
    assert "Hostile" in about(error, Hostile(), "prices")


def test_operations_are_of_the_code_and_what_is_raised_is_not() -> None:
    record = Named("a", [])
    assert is_of_code(error_of(attribute, record))
    assert is_of_code(error_of(unknown, record))
    assert not is_of_code(error_of(raised, record))
    assert not is_of_code(ValueError("of no traceback"))


def deep(depth: int) -> Any:
    return deep(depth - 1) if depth else 1 + "a"  # type: ignore[operator]


def test_a_traceback_has_at_most_fifteen_lines_and_those_of_the_user_first() -> None:
    error = error_of(deep, 40)
    lines = shown_traceback(traceback.TracebackException.from_exception(error)).splitlines()
    assert len(lines) <= 15
    assert "test_errors_of_user_code.py" in lines[1]
    assert lines[-1].startswith("TypeError")


def within_except(_: Any) -> Any:
    try:
        deep(9)
    except TypeError:
        raise ValueError("no price")  # noqa: B904


def from_cause(_: Any) -> Any:
    try:
        within_except(_)
    except ValueError as error:
        raise TypeError("no order") from error


def from_none(_: Any) -> Any:
    try:
        deep(9)
    except TypeError:
        raise ValueError("no price") from None


@pytest.mark.parametrize(
    ("function", "lines"),
    [
        (
            within_except,
            ["TypeError: ", "and, while it was handled:", "ValueError: no price"],
        ),
        (from_cause, ["TypeError: unsupp", "and, while it was handled:", "TypeError: no order"]),
        (from_none, ["ValueError: no price"]),
    ],
)
def test_the_first_of_several_errors_is_shown(function: Any, lines: list[str]) -> None:
    error = error_of(function, Named("a", 1))
    text = shown_traceback(traceback.TracebackException.from_exception(error))
    assert len(text.splitlines()) <= 9
    shown = [line for line in text.splitlines()[1:] if not line.startswith(" ")]
    assert len(shown) == len(lines)
    assert all(line.startswith(start) for line, start in zip(shown, lines, strict=True))


class OfAnError(KeyError):
    @property
    def args(self) -> Any:  # type: ignore[override]
        raise ValueError("no")


def several_errors(_: Any) -> Any:
    raise ExceptionGroup("of both", [ValueError("of one"), TypeError("of another")])


def hostile_error(_: Any) -> Any:
    raise OfAnError


def test_an_error_whose_attributes_raise_has_its_record() -> None:
    record = Named("a", 1)
    assert "record Named(" in about(error_of(hostile_error, record), record, "prices")


def test_the_errors_of_a_group_are_shown() -> None:
    error = error_of(several_errors, Named("a", 1))
    text = shown_traceback(traceback.TracebackException.from_exception(error))
    assert "ValueError: of one" in text
    assert "TypeError: of another" in text
