"""Sources of records for Spark: the event log, and a stream of NATS JetStream (SPEC T-02)."""

from __future__ import annotations

from pyspark.sql import SparkSession

from wanderbus.pipeline.source.columns import ColumnError, log_schema
from wanderbus.pipeline.source.jetstream_source import FilteringJetStreamSource, JetStreamSource
from wanderbus.pipeline.source.log_source import FORMAT, FilteringLogSource, LogSource
from wanderbus.pipeline.source.options import OptionError

__all__ = ["FORMAT", "ColumnError", "OptionError", "log_schema", "register"]


def register(spark: SparkSession) -> None:
    """Register the sources in a session: with pushdown where the session has enabled it for Python sources."""
    is_enabled = spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    for plain, filtering in ((LogSource, FilteringLogSource), (JetStreamSource, FilteringJetStreamSource)):
        spark.dataSource.register(filtering if is_enabled else plain)
