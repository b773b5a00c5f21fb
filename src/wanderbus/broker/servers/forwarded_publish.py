"""One event that was forwarded to the server that leads its channel."""

from __future__ import annotations

from typing import NamedTuple


class ForwardedPublish(NamedTuple):
    """A forwarded event: the link that waits for the answer, and the number of the event there."""

    link: int
    number: int
    is_outbox: bool
