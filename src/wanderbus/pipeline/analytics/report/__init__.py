"""The report: one HTML page with its plots inside, which needs no network."""

from __future__ import annotations

from wanderbus.pipeline.analytics.report.file import write_page
from wanderbus.pipeline.analytics.report.page import PageRefresh, page

__all__ = ["PageRefresh", "page", "write_page"]
