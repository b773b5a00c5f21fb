"""One address that uses the original ECI."""

from __future__ import annotations

from typing import NamedTuple


class AttachedAddress(NamedTuple):
    """An attached address: its link, the epoch of its attachment, and the time of its last message."""

    link: int
    epoch: int
    last_message_at: float
