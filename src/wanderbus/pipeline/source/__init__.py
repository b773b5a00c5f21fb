"""Sources of records for Spark: the event log, and a stream of NATS JetStream (SPEC T-02).

Names are loaded on first use: readers of the log do not need Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wanderbus.pipeline.names_on_demand import names_on_demand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wanderbus.pipeline.source.columns import log_schema
    from wanderbus.pipeline.source.log_source import FORMAT
    from wanderbus.pipeline.source.options import ColumnError, OptionError

_HOMES: Final = {"ColumnError": "options", "FORMAT": "log_source", "OptionError": "options", "log_schema": "columns"}

__all__ = ["FORMAT", "ColumnError", "OptionError", "log_schema", "register"]


def register(spark: SparkSession) -> None:
    """Register the sources in a session: with pushdown where the session has enabled it for Python sources."""
    from wanderbus.pipeline.source.jetstream_source import FilteringJetStreamSource, JetStreamSource
    from wanderbus.pipeline.source.log_source import FilteringLogSource, LogSource

    is_enabled = spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    for plain, filtering in ((LogSource, FilteringLogSource), (JetStreamSource, FilteringJetStreamSource)):
        spark.dataSource.register(filtering if is_enabled else plain)


if not TYPE_CHECKING:
    __getattr__ = names_on_demand(__name__, _HOMES)
