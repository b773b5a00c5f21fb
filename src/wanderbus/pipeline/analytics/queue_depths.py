"""Depth of queues over time: the number of matches that wait."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)


def queue_depths(matches: DataFrame, bucket_us: int, by: Sequence[str] = ("user", "session")) -> DataFrame:
    """Return the depth at the end of each time of ``bucket_us``, and the greatest in it, for each of ``by``.

    A time in which nothing changes has no row. Matches that begin and end at one time do not count towards the
    greatest depth.
    """
    begins = matches.select(*by, "at_us", F.lit(1).alias("change"))
    ends = matches.where("ended_us is not null").select(
        *by, F.col("ended_us").alias("at_us"), F.lit(-1).alias("change")
    )
    changes = begins.union(ends).groupBy(*by, "at_us").agg(F.sum("change").alias("change"))
    in_order = Window.partitionBy(*by).orderBy("at_us")
    depths = (
        changes.withColumn("depth", F.sum("change").over(in_order))
        .withColumn("before", F.col("depth") - F.col("change"))
        .withColumn("bucket", F.floor(F.col("at_us") / bucket_us).cast("bigint"))
    )
    return (
        depths.groupBy(*by, "bucket")
        .agg(F.max_by("depth", "at_us").alias("depth"), F.max(F.greatest("depth", "before")).alias("depth_max"))
        .select(*by, (F.col("bucket") * bucket_us).alias("from_us"), "depth", "depth_max")
    )
