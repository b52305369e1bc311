"""Page views are deduplicated, counted, and combined into visits, with state in Spark.

    sunshower run examples/spark_state.py

It needs `make setup EXTRAS=spark`. A file of views, created if there is none, is read in batches.
Three steps have a state: `fresh` stores the ids of all views, `counts` the views of each page,
`visits` the open visits. The table `views/visits` has the finished visits, `views/counts` the
counts that each batch has changed. Kill the program, or one of its workers, as often as you like:
no view is counted twice, and none is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from sunshower import Line, Topology
from sunshower.spark_integration import (
    BatchInfo,
    LocalSpark,
    RayDPSpark,
    spark,
    spark_state,
    table,
)
from sunshower.trident import Bounds, InSqlite, TextFileBatches, batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDER, VIEWS = Path("views"), 3_000
PAUSE_S = 1_800  # a visit ends when the visitor has viewed no page for this time


class View(NamedTuple):
    id: int
    second: int
    visitor: str
    page: str


class Seen(NamedTuple):
    id: int


class Count(NamedTuple):
    page: str
    views: int


class Visit(NamedTuple):
    visitor: str
    first: int
    last: int
    views: int


def make_file() -> None:
    """Write the views, the same on every machine, ordered by time; every tenth occurs twice."""
    FOLDER.mkdir(exist_ok=True)
    chance, file = Random(18), FOLDER / "views.txt"
    if file.exists():
        return
    draft = file.with_suffix(".draft")
    with draft.open("w") as out:
        for id in range(VIEWS):
            view = f"{id} {id * 30} v{chance.randrange(40)} p{chance.randrange(8)}\n"
            out.write(view if id % 10 else view * 2)
    draft.rename(file)


def parse(line: Line) -> Iterator[View]:
    id, second, visitor, page = line.text.split()
    yield View(int(id), int(second), visitor, page)


def fresh(views: DataFrame, seen: DataFrame, _: BatchInfo) -> tuple[DataFrame, DataFrame]:
    """Views with a new id; the state has all ids."""
    new = views.dropDuplicates(["id"]).join(seen, "id", "left_anti")
    return new, seen.union(new.select("id"))


def counts(views: DataFrame, before: DataFrame, _: BatchInfo) -> tuple[DataFrame, DataFrame]:
    """The views of each page so far; the result has the pages of this batch."""
    from pyspark.sql import functions as f

    views_so_far = before.union(views.select("page", f.lit(1)))
    now = views_so_far.groupBy("page").agg(f.sum("views").alias("views"))
    return now.join(views, "page", "left_semi"), now


def visits(views: DataFrame, unfinished: DataFrame, _: BatchInfo) -> tuple[DataFrame, DataFrame]:
    """Finished visits; the state has the open ones."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    parts = unfinished.union(views.select("visitor", "second", "second", f.lit(1)))
    order = Window.partitionBy("visitor").orderBy("first")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    pause = f.col("first") - f.max("last").over(before)
    begins = f.when(pause > PAUSE_S, 1).otherwise(0)
    numbered = parts.withColumn("begins", begins)
    numbered = numbered.withColumn("number", f.sum("begins").over(order))
    merged = numbered.groupBy("visitor", "number").agg(
        f.min("first").alias("first"), f.max("last").alias("last"), f.sum("views").alias("views")
    )
    now = merged.agg(f.max("last").alias("now"))
    known = merged.crossJoin(now).withColumn("over", f.col("last") + PAUSE_S < f.col("now"))
    columns = ("visitor", "first", "last", "views")
    return known.where("over").select(*columns), known.where("not over").select(*columns)


make_file()
topology = Topology("spark-state")
file = TextFileBatches(FOLDER / "views.txt", bounds=Bounds(records=600))
lines = batches(topology, "lines", file, store=InSqlite("views.batches.db"), max_batches=2)
# One shared session on the Ray cluster, or one in each worker that needs it.
where = RayDPSpark() if os.environ.get("SPARK_ON") == "cluster" else LocalSpark()
seen = spark(fresh, out=View, state=spark_state(FOLDER / "state/seen", Seen), where=where)
count = spark(counts, state=spark_state(FOLDER / "state/counts", Count), where=where)
visit = spark(visits, state=spark_state(FOLDER / "state/visits", Visit), where=where)
new = lines.flat_map(parse).apply(seen).named("fresh")
new.apply(count.write(table(FOLDER / "counts"))).named("counts")
new.apply(visit.write(table(FOLDER / "visits"))).named("visits")
