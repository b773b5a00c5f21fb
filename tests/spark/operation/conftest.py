"""The log of the tests of the lake."""

from __future__ import annotations

from tests.spark.lake.conftest import every_record

__all__ = ["every_record"]
