"""History from the lake for subscriptions that begin in the past (SPEC T-05).

:func:`history_service` answers the requests of a server for records that its log has no more. For a whole history as a
DataFrame see :mod:`wanderbus.pipeline.history`.
"""

from __future__ import annotations

from pathlib import Path

from wanderbus.pipeline.replay.lake_history import LakeHistory
from wanderbus.runtime.services.history import NAME, handlers_of
from wanderbus.runtime.services.service import Service

__all__ = ["LakeHistory", "history_service"]


def history_service(data_dir: Path | str, lake: Path | str) -> Service:
    """Return the service that answers the server in ``data_dir`` from ``lake``: a context manager, with own threads.

    The lake may be empty yet, and grow meanwhile. It answers no request if it has read another log.
    """
    data_dir = Path(data_dir)
    return Service(data_dir, NAME, handlers_of(LakeHistory(Path(lake), data_dir / "log")))
