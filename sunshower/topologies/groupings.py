"""Declarations of groupings: which tasks of a subscriber receive a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from sunshower.errors import TopologyError
from sunshower.records import Schema


@dataclass(frozen=True)
class Shuffle:
    """Evenly over all tasks: after each batch no task is more than one record ahead."""


@dataclass(frozen=True)
class Fields:
    """Equal values of `fields` go to the same task, in every process and after every restart."""

    fields: tuple[str, ...]


@dataclass(frozen=True)
class PartialKey:
    """Each key has two fixed tasks; the one to which this sender has sent fewer gets the record."""

    fields: tuple[str, ...]


@dataclass(frozen=True)
class All:
    """A copy to every task."""


@dataclass(frozen=True)
class Global:
    """Every record to the task with the lowest id."""


@dataclass(frozen=True)
class NoneGrouping:
    """A random task for each record (as in Storm, which documents it as shuffle)."""


@dataclass(frozen=True)
class Direct:
    """The sender names the task, with `emit_direct`."""


@dataclass(frozen=True)
class LocalOrShuffle:
    """Shuffle over the tasks in the sender's own worker if there are any, else over all."""


class CustomGrouping(Protocol):
    """A user-defined grouping. Each sending task has a copy of its own for each subscription."""

    def prepare(self, targets: Sequence[int]) -> None:
        """Called once, before the first record, with the subscriber's task ids, ascending."""

    def choose(self, record: Any) -> Sequence[int]:
        """Return the task ids, out of `targets`, that get `record`.

        An empty result drops it, and acks it if it goes nowhere else.
        """


@dataclass(frozen=True)
class Custom:
    """The grouping of a CustomGrouping object."""

    grouping: CustomGrouping


Grouping: TypeAlias = (
    Shuffle | Fields | PartialKey | All | Global | NoneGrouping | Direct | LocalOrShuffle | Custom
)


def describe(grouping: Grouping) -> str:
    """Return a grouping as in the DSL: `fields(word)`, `shuffle`, `global`."""
    match grouping:
        case Fields(fields=fields):
            return f"fields({', '.join(map(str, fields))})"
        case PartialKey(fields=fields):
            return f"partial_key({', '.join(map(str, fields))})"
        case LocalOrShuffle():
            return "local_or_shuffle"
        case NoneGrouping():
            return "none"
        case Custom(grouping=custom):
            return f"custom({type(custom).__name__})"
        case _:
            return type(grouping).__name__.lower()


def check(grouping: Grouping, schema: Schema, where: str, *, direct: bool) -> None:
    """Raise TopologyError or UnknownField for a grouping that records of `schema` cannot have.

    `direct`: whether their stream is a direct one. Storm: Task.java:124,160.
    """
    word = describe(grouping)
    match grouping:
        case Fields(fields=fields) | PartialKey(fields=fields):
            if not fields:
                raise TopologyError(
                    f"{where}: {word} needs a field, one of: {', '.join(schema.fields)}"
                )
            for field in fields:
                schema.check_field(field, where)
        case Custom(grouping=custom):
            if not (hasattr(custom, "prepare") and hasattr(custom, "choose")):
                raise TopologyError(
                    f"{where}: {word} needs an object with prepare(targets) and choose(record), "
                    "as in CustomGrouping"
                )
    if direct != isinstance(grouping, Direct):
        raise TopologyError(
            f"{where} is a direct stream, which only .direct() reads, not {word}"
            if direct
            else f"{where} is not a direct stream: read it with another grouping than direct, or "
            "declare it as DirectStream(...)"
        )
