"""Spark joins and ranks batches of sales, and writes each sale once into a table.

    sunshower run examples/heavy_transform.py
    sqlite3 heavy.db "SELECT key, value ->> 1 AS n FROM count ORDER BY n DESC LIMIT 5"

It needs `make setup EXTRAS=spark`. Files of sales, created if there are none, are read in batches;
invalid lines are skipped. Spark joins each batch with a table of pages, ranks it by category and
hour, and writes it as Parquet: you can read `heavy/sales` with `spark.read.parquet` at any time,
and get only committed batches. The best sale of each hour is returned as a stream, and counted by
page in `heavy.db`. Kill the program, or one of its workers, as often as you like.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from sunshower import Line, Topology
from sunshower.spark_integration import BatchInfo, LocalSpark, RayDPSpark, spark, table
from sunshower.state import SqliteState
from sunshower.trident import Bounds, InSqlite, TextFileBatches, batches, count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDER, FILES, LINES = Path("heavy"), 4, 5_000
CATEGORIES = ["books", "games", "music", "tools"]
PAGES = pa.table(
    {
        "page": [f"p{number}" for number in range(40)],
        "category": [CATEGORIES[number % 4] for number in range(40)],
    }
)


class Sale(NamedTuple):
    id: int
    hour: int
    page: str
    price: float


class Ranked(NamedTuple):
    id: int
    hour: int
    page: str
    price: float
    category: str
    rank: int


def make_files() -> None:
    """Write files of sales, the same on every machine; every hundredth line is invalid."""
    (FOLDER / "input").mkdir(parents=True, exist_ok=True)
    for part in range(FILES):
        chance, file = Random(part), FOLDER / f"input/sales-{part}.txt"
        if file.exists():
            continue
        draft = file.with_suffix(".draft")
        with draft.open("w") as out:
            for number in range(LINES):
                page, price = chance.randrange(40), chance.randrange(100, 10_000) / 100
                sale = f"{part * LINES + number} {number * 24 // LINES} p{page} {price}"
                out.write(f"{sale if number % 100 else '???'}\n")
        draft.rename(file)


def parse(line: Line) -> Iterator[Sale]:
    words = line.text.split()
    if len(words) == 4:
        yield Sale(int(words[0]), int(words[1]), words[2], float(words[3]))


def rank(sales: DataFrame, batch: BatchInfo) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql.functions import desc, row_number

    order = Window.partitionBy("category", "hour").orderBy(desc("price"), "id")
    return sales.join(batch.tables["pages"], "page").withColumn("rank", row_number().over(order))


def is_best(sale: Ranked) -> bool:
    return sale.rank == 1


make_files()
topology = Topology("heavy-transform")
files = TextFileBatches(FOLDER / "input/sales-*.txt", bounds=Bounds(records=2_500))
lines = batches(topology, "lines", files, store=InSqlite("heavy_batches.db"), max_batches=2)
sales = lines.shuffle(parallelism=2).flat_map(parse)
# One shared session on the Ray cluster, or one in each worker that needs it.
where = RayDPSpark() if os.environ.get("SPARK_ON") == "cluster" else LocalSpark()
step = spark(rank, out=Ranked, tables={"pages": PAGES}, where=where).write(table(FOLDER / "sales"))
best = sales.apply(step).named("ranked").filter(is_best)
best.group_by("page").aggregate(count(), state=SqliteState("heavy.db"))
