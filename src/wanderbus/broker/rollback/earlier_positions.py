"""Gaps for applications that resume from a position before their last acknowledgement (DESIGN 5.5).

An application that was restored from a copy lacks what a later life of it has acknowledged, and the broker has no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wanderbus import protocol
from wanderbus.broker.readers import Link
from wanderbus.broker.state.rows import SessionRow
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import Loss, Position

GAP_REASON: Final = "acknowledged_before"
"""Reason of a gap after notifications that an earlier life of the application has acknowledged."""


class EarlierPositions:
    """Numbers behind the positions of devices that they have acknowledged, until their readers are opened."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._skipped: dict[str, dict[str, tuple[int, int]]] = {}
        """First and last of them, by device and subscription."""

    def begin(self, link: Link, session: SessionRow, position: Position | None) -> None:
        """Compare the position from which a life of an agent begins with what its device has acknowledged."""
        self._skipped.pop(link.key, None)
        if position is not None and not link.unattended:
            self.resume(link, session, position, (*session.subscriptions, *session.ended))

    def resume(self, link: Link, session: SessionRow, position: Position, subscriptions: Iterable[str]) -> None:
        """Compare a position of these subscriptions."""
        common = session.in_common(position)
        for identity in subscriptions:
            if (row := self._state.known(identity)) is None:
                continue
            taken = max(row.settled, (row.cursors or {}).get(link.device, 0))
            if taken > common:
                self._skipped.setdefault(link.key, {})[identity] = common + 1, taken

    def take(self, link: Link, subscription: str, handle: int) -> protocol.NotifyGap | None:
        """Return and forget the gap that a new reader gets first."""
        skipped = self._skipped.get(link.key, {}).pop(subscription, None)
        if skipped is None:
            return None
        return protocol.NotifyGap(*skipped, (Loss(subscription, GAP_REASON, 1),), handle)
