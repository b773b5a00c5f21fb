"""Index of filters: finds the subscriptions that an event matches (SPEC A-03, B-01; DESIGN 7.4).

The broker uses :class:`Index`; tests compare it with :class:`ScanIndex`, which tries every filter.
"""

from __future__ import annotations

from wanderbus.matching.index import SCANNED_MAX, Index, Kernel, load_kernel
from wanderbus.matching.scan import ScanIndex

__all__ = ["SCANNED_MAX", "Index", "Kernel", "ScanIndex", "load_kernel"]
