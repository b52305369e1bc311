"""A transform that is an SQL query, and the temporary views that its table names refer to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sunshower.errors import TopologyError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INPUT = "batch"  # the view of a single input


@dataclass(frozen=True)
class SqlQuery:
    """A transform that registers its inputs and static tables as views and queries them."""

    text: str
    inputs: tuple[str, ...] = (INPUT,)

    def __call__(self, *arguments: Any) -> DataFrame:
        """Return the result. Spark resolves names here, so the views can be dropped."""
        *frames, batch = arguments
        named = [*zip(self.inputs, frames, strict=True), *batch.tables.items()]
        with _views(frames[0].sparkSession, named) as session:
            return session.sql(self.text)


def check_views(inputs: Sequence[str], tables: Sequence[str]) -> None:
    """Raise TopologyError for a name that cannot be a view, or that is used twice (Spark ignores
    case)."""
    used: dict[str, str] = {}
    for kind, name in (*(("input", one) for one in inputs), *(("table", one) for one in tables)):
        if not (name.isidentifier() and name.isascii()):
            raise TopologyError(
                f"spark_sql: the {kind} {name!r} is to be a view, and that is no name for one: "
                "take letters, digits and _"
            )
        if other := used.get(name.casefold()):
            raise TopologyError(
                f"spark_sql: the {kind} {name!r} has the name of the {other}: give one of them "
                "another (the inputs are the names of their record types, a single one is "
                f"{INPUT!r})"
            )
        used[name.casefold()] = f"{kind} {name!r}"


@contextmanager
def _views(session: SparkSession, named: Sequence[tuple[str, Any]]) -> Iterator[SparkSession]:
    """Register views and drop them at the end, because other steps share this session."""
    catalog = session._jsparkSession.sessionState().catalog()  # the public one would uncache them
    try:
        for name, frame in named:
            frame.createOrReplaceTempView(name)
        yield session
    finally:
        for name, _ in named:
            catalog.dropTempView(name)
