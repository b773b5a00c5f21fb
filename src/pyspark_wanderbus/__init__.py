"""Registration of the event log's source with every session of Spark, which looks for modules of this prefix.

After ``pip install 'wanderbus[pipeline]'``, ``spark.read.format("wanderbus")`` needs no import. Without the packages of
the pipeline there is no source: an error here would take all other sources of Python from Spark.
"""

from __future__ import annotations

from contextlib import suppress

with suppress(ImportError):
    from wanderbus.pipeline.source.log_source import LogSource as DefaultSource  # noqa: F401 (the name for which it looks)
